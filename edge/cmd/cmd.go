// Package cmd is the command line: one file a command. It puts the rooms
// together and takes them apart in reverse.
package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"
	"github.com/valyala/fasthttp"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is what was wrong with the command line itself.
type usageError struct{ error }

// Main runs the command that args name, the program's own name first, and
// returns its exit code.
func Main(args []string) int { return run(args, os.Stdout, os.Stderr) }

func run(args []string, stdout, stderr io.Writer) int {
	// Up to which size a body is recycled; fasthttp's default is any.
	fasthttp.SetBodySizePoolLimit(1<<20, 1<<20)
	app := &cli.App{
		Name:            "eisbach",
		Usage:           "the front door between apps and language models",
		Writer:          stdout,
		ErrWriter:       stderr,
		HideVersion:     true,
		HideHelpCommand: true,
		Commands:        []*cli.Command{devCommand(), serveCommand(), keyCommand(), versionCommand()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("there is no command %q; see eisbach --help", c.Args().First())}
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError:   onUsage,
		ExitErrHandler: func(*cli.Context, error) {}, // main alone exits
	}
	for _, command := range app.Commands {
		command.OnUsageError = onUsage
		command.Before = noArguments
	}
	err := app.Run(args)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "eisbach:", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
}

func onUsage(_ *cli.Context, err error, _ bool) error { return usageError{err} }

func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("%s takes no argument %q", c.Command.Name, c.Args().First())}
	}
	return nil
}
