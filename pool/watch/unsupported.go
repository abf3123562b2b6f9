//go:build !unix

package watch

import (
	"errors"
	"net"
)

// Gone can't be told on this system and is false.
func Gone(fd int) bool { return false }

// Quiet can't be told on this system and is false, so that no connection is used
// again that might hold another request's answer.
func Quiet(fd int) bool { return false }

// unsupported is the notifier of a system without poll(2): it watches nothing.
type unsupported struct{ quit chan struct{} }

func newNotifier() (notifier, error) { return unsupported{make(chan struct{})}, nil }

func (unsupported) add(int, Mode, Token) error { return errors.ErrUnsupported }

func (unsupported) remove(int) {}

func (u unsupported) wait([]Token) (int, error) {
	<-u.quit
	return 0, net.ErrClosed
}

func (u unsupported) close() error {
	close(u.quit)
	return nil
}
