package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"eisbach/edge"
	"eisbach/edge/config"
	"eisbach/pool"
	"eisbach/pool/watch"
)

func listenFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "listen", EnvVars: []string{"EISBACH_LISTEN"}, Usage: "address to listen on, such as :8080"}
}

func configFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "config", EnvVars: []string{"EISBACH_CONFIG"}, Usage: "configuration file"}
}

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:        "serve",
		Usage:       "the production front door",
		Description: "Example:\n  eisbach serve --config eisbach.toml",
		Flags:       []cli.Flag{configFlag(), listenFlag()},
		Action: func(c *cli.Context) error {
			lookup, err := config.Dotenv(".env")
			if err != nil {
				return err
			}
			file := fromDotenv(c, "config", lookup)
			if file == "" {
				return usageError{fmt.Errorf("serve needs --config FILE")}
			}
			return serve(c.App.ErrWriter, config.Options{File: file, Listen: fromDotenv(c, "listen", lookup), Lookup: lookup}, nil)
		},
	}
}

// fromDotenv gives a flag's value: from the command line or the environment, or
// else from .env.
func fromDotenv(c *cli.Context, flag string, lookup func(string) (string, bool)) string {
	if c.IsSet(flag) {
		return c.String(flag)
	}
	for _, f := range c.Command.Flags {
		if named, ok := f.(*cli.StringFlag); ok && named.Name == flag {
			for _, env := range named.EnvVars {
				if value, ok := lookup(env); ok {
					return value
				}
			}
		}
	}
	return c.String(flag)
}

// serve runs until it is told to stop. adjust, where given, has the last word
// on each table.
func serve(stderr io.Writer, options config.Options, adjust func(*edge.Table)) error {
	settings, err := config.Load(options)
	if err != nil {
		return err
	}
	return serveConfig(stderr, settings, func() (*config.Config, error) { return config.Load(options) }, adjust)
}

func serveConfig(stderr io.Writer, settings *config.Config, reload func() (*config.Config, error), adjust func(*edge.Table)) error {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	watcher, err := watch.New()
	if err != nil {
		return err
	}
	defer watcher.Close()
	ln, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return err
	}
	f := &frontDoor{pools: make(map[*pool.Upstream]struct{}), log: log, watcher: watcher, reload: reload, adjust: adjust, drain: settings.Drain}
	f.rooms = f.furnish(settings)
	f.server = edge.New(f.rooms.table, watcher, log, stderr)
	defer f.close()
	return f.run(ln)
}

// frontDoor is a running server and what it was built from.
type frontDoor struct {
	log     *slog.Logger
	watcher *watch.Watcher
	server  *edge.Server
	rooms   *rooms
	pools   map[*pool.Upstream]struct{} // all there ever were: requests that began with one may still run
	reload  func() (*config.Config, error)
	adjust  func(*edge.Table)
	drain   time.Duration
}

func (f *frontDoor) close() {
	for p := range f.pools {
		p.Close()
	}
}

func (f *frontDoor) furnish(c *config.Config) *rooms {
	for _, w := range c.Warnings {
		f.log.Warn("configuration", "problem", w.String())
	}
	r := furnish(c, f.watcher, f.rooms)
	for _, p := range r.pools {
		f.pools[p.Upstream] = struct{}{}
	}
	if f.adjust != nil {
		f.adjust(r.table)
	}
	return r
}

// run serves until a signal, then drains. A second signal ends it at once.
func (f *frontDoor) run(ln net.Listener) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ln) }()
	f.log.Info("serving", "listen", ln.Addr().String())
	for {
		select {
		case err := <-served:
			return err
		case s := <-signals:
			if s == syscall.SIGHUP {
				f.reloadNow()
				continue
			}
			return f.stop(signals)
		}
	}
}

// stop drains. The listener stays open meanwhile, so that load balancers can
// see why.
func (f *frontDoor) stop(signals <-chan os.Signal) error {
	f.log.Info("draining", "open", f.server.Active(), "for", f.drain.String())
	ctx, cancel := context.WithTimeout(context.Background(), f.drain)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				return fmt.Errorf("eisbach: stopped by a second signal")
			}
		}
	}
}

// reloadNow puts a changed configuration in force; a bad one changes nothing.
// Streams that run keep what they began with.
func (f *frontDoor) reloadNow() {
	settings, err := f.reload()
	if err != nil {
		f.log.Error("the configuration was not reloaded", "problems", err.Error())
		return
	}
	f.rooms = f.furnish(settings)
	f.drain = settings.Drain
	f.server.Swap(f.rooms.table)
	f.log.Info("reloaded")
}
