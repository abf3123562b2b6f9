// Eisbach is the front door between apps and language models.
package main

import (
	"os"

	"eisbach/edge/cmd"
)

func main() { os.Exit(cmd.Main(os.Args)) }
