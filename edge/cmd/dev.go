package cmd

import (
	"fmt"
	"io"
	"net"

	"github.com/urfave/cli/v2"

	"eisbach/edge"
	"eisbach/edge/config"
	"eisbach/pool/sim"
)

func devCommand() *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "a local server; without a key it plays the upstream itself",
		Description: "With INFERCOM_API_KEY it talks to Infercom, with --config to that file's upstreams,\n" +
			"and otherwise to a simulator inside of it: no key, no network.\n\nExample:\n  eisbach dev --listen :8080",
		Flags: []cli.Flag{configFlag(), listenFlag()},
		Action: func(c *cli.Context) error {
			lookup, err := config.Dotenv(".env")
			if err != nil {
				return err
			}
			listen := fromDotenv(c, "listen", lookup)
			if file := fromDotenv(c, "config", lookup); file != "" {
				return serve(c.App.ErrWriter, config.Options{File: file, Listen: listen, Lookup: lookup}, edge.LocalOnly)
			}
			if listen == "" {
				listen = ":8080"
			}
			if key, _ := lookup("INFERCOM_API_KEY"); key != "" {
				return devWith(c.App.ErrWriter, infercom, listen, lookup, edge.LocalOnly)
			}
			return devSimulated(c.App.ErrWriter, listen, lookup)
		},
	}
}

// infercom is what dev serves with a key and no file.
const infercom = `
[upstream.infercom]
url  = "https://api.infercom.ai/v1"
keys = ["$INFERCOM_API_KEY"]
`

// simulated is what dev serves without either.
const simulated = `
[upstream.simulator]
url       = "http://%s/v1"
max_conns = 10000
`

// devRoute goes with each: everything that the edge understands, for anybody
// who can reach it.
const devRoute = `
[cors]
origins = ["*"]
[route.default]
auth      = "none"
model     = "MiniMax-M2.7"
endpoints = ["chat/completions", "completions", "embeddings", "responses", "messages", "models", "audio/transcriptions"]
`

func devSimulated(stderr io.Writer, listen string, lookup func(string) (string, bool)) error {
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return usageError{fmt.Errorf("--listen %s: %w", listen, err)}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := sim.New(sim.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ln)
	}()
	defer func() {
		s.Close()
		<-done
	}()
	host := "localhost:" + port
	fmt.Fprintf(stderr, "The upstream is simulated: no key, no network. Try, in another terminal:\n\n"+
		"  curl -N http://%s/v1/chat/completions -d '{\"model\":\"MiniMax-M2.7\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}'\n\n", host)
	return devWith(stderr, fmt.Sprintf(simulated, ln.Addr()), listen, lookup, nil)
}

func devWith(stderr io.Writer, upstream, listen string, lookup func(string) (string, bool), adjust func(*edge.Table)) error {
	load := func() (*config.Config, error) {
		c, err := config.Parse("dev", []byte(upstream+devRoute), ".", lookup)
		if err == nil {
			c.Listen = listen
		}
		return c, err
	}
	settings, err := load()
	if err != nil {
		return err
	}
	return serveConfig(stderr, settings, load, adjust)
}
