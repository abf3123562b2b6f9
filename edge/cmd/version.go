package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print version, commit and Go",
		Description: "Example:\n  eisbach version",
		Action: func(c *cli.Context) error {
			version, commit := "devel", "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				if info.Main.Version != "" && info.Main.Version != "(devel)" {
					version = info.Main.Version
				}
				modified := ""
				for _, setting := range info.Settings {
					switch {
					case setting.Key == "vcs.revision":
						commit = setting.Value
					case setting.Key == "vcs.modified" && setting.Value == "true":
						modified = "+modified"
					}
				}
				commit += modified
			}
			_, err := fmt.Fprintf(c.App.Writer, "eisbach %s\ncommit  %s\ngo      %s %s/%s\n",
				version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
