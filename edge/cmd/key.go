package cmd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/urfave/cli/v2"
)

func keyCommand() *cli.Command {
	return &cli.Command{
		Name:  "key",
		Usage: "make a client key: prints it once, and the hash that goes into the configuration",
		Description: "The first line is the key, for the app; the second the setting of its [client.NAME].\n\n" +
			"Example:\n  eisbach key",
		Action: func(c *cli.Context) error {
			var random [32]byte
			rand.Read(random[:])
			key := "eb_" + base64.RawURLEncoding.EncodeToString(random[:])
			_, err := fmt.Fprintf(c.App.Writer, "%s\nhash = \"sha256:%x\"\n", key, sha256.Sum256([]byte(key)))
			return err
		},
	}
}
