// Package watch says, from one goroutine for all sockets, when a peer leaves: a
// client while its upstream is silent, or an upstream while its connection is
// kept for later. Neither is seen by reading, since nobody reads then.
package watch

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// Mode is what a Listener wants to be told of.
type Mode uint8

const (
	// Left is a peer that closed its connection or reset it, or that shut down
	// its sending side, which can't be told from closing before something is
	// written (net/http takes it for leaving as well: go.dev/issue/18527).
	// Bytes that wait unread neither count nor hide it.
	Left Mode = iota
	// Readable is Left, or any byte to read: on a connection between two
	// requests it would become the answer to the next one.
	Readable
)

// Token names one watch, and never another one: it holds the generation of its
// place. The zero Token names none.
type Token uint64

func newToken(index int, generation uint32) Token {
	return Token(generation)<<32 | Token(uint32(index))
}

func (t Token) index() int         { return int(uint32(t)) }
func (t Token) generation() uint32 { return uint32(t >> 32) }

// Listener is told what it was added for.
type Listener interface {
	// PeerLeft is called at most once for each Add, perhaps before Add has
	// returned, and ends the watch: no Remove has to follow. It runs on the
	// Watcher's goroutine with its lock held, which makes Remove a barrier, so it
	// must not block, call the Watcher, nor close the descriptor itself.
	PeerLeft(t Token)
}

// notifier is what an operating system has to offer. All but wait are called
// with the Watcher's lock held, and none after close.
type notifier interface {
	// add asks for one or more mentions of t once m holds for fd, also where it
	// does already.
	add(fd int, m Mode, t Token) error
	remove(fd int)
	// wait blocks until something is to be said and puts it at the beginning of
	// ready, stale tokens perhaps among it. Its error is that of a closed notifier.
	wait(ready []Token) (int, error)
	close() error
}

// batch is how many reports are fetched at once.
const batch = 128

// Watcher watches sockets, which may sit in Go's own network poller at the same
// time. It is safe for concurrent use.
type Watcher struct {
	notifier notifier
	done     chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	slots  []slot
	free   int // the first free slot, -1: none
	closed bool
}

// slot is the place of one watch.
type slot struct {
	generation uint32 // never 0, so that no Token is
	fd         int    // -1: free
	next       int    // the next free slot
	listener   Listener
}

// New starts a Watcher. Its goroutine runs until Close.
func New() (*Watcher, error) {
	n, err := newNotifier()
	if err != nil {
		return nil, err
	}
	return start(n), nil
}

func start(n notifier) *Watcher {
	w := &Watcher{notifier: n, done: make(chan struct{}), free: -1}
	go w.run()
	return w
}

// Close ends all watches without a word and waits for the goroutine. After it,
// Add fails with net.ErrClosed and Remove does nothing. It closes no socket.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.done
		return nil
	}
	w.closed = true
	w.slots = nil
	err := w.notifier.close()
	w.mu.Unlock()
	<-w.done
	return err
}

// Add watches the socket fd until l has been told or Remove is called. A peer
// that has left already is reported as well. The descriptor must stay open until
// then, and can have one watch at a time. An error comes with the zero Token;
// it wraps errors.ErrUnsupported where the system has no way to tell.
func (w *Watcher) Add(fd int, m Mode, l Listener) (Token, error) {
	if fd < 0 {
		return 0, os.NewSyscallError("watch", syscall.EBADF)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	if w.free < 0 {
		w.free = len(w.slots)
		w.slots = append(w.slots, slot{generation: 1, fd: -1, next: -1})
	}
	index := w.free
	s := &w.slots[index]
	t := newToken(index, s.generation)
	if err := w.notifier.add(fd, m, t); err != nil {
		return 0, err
	}
	w.free, s.fd, s.listener = s.next, fd, l
	return t, nil
}

// Remove ends a watch. It must be called before the descriptor is closed, unless
// the watch was reported. Once it has returned, no call for t runs or will run.
// A Token whose watch has ended is ignored, and so is the zero Token.
func (w *Watcher) Remove(t Token) {
	if t == 0 {
		return
	}
	w.mu.Lock()
	w.end(t)
	w.mu.Unlock()
}

// end frees the slot of t and gives its listener, nil where t names no watch any
// more; w.mu is held.
func (w *Watcher) end(t Token) Listener {
	index := t.index()
	if index >= len(w.slots) { // always so once closed
		return nil
	}
	s := &w.slots[index]
	if s.fd < 0 || s.generation != t.generation() {
		return nil
	}
	l := s.listener
	w.notifier.remove(s.fd)
	s.fd, s.listener = -1, nil
	if s.generation++; s.generation == 0 {
		s.generation = 1
	}
	s.next, w.free = w.free, index
	return l
}

func (w *Watcher) run() {
	defer close(w.done)
	ready := make([]Token, batch)
	for {
		n, err := w.notifier.wait(ready)
		if err != nil {
			return
		}
		for _, t := range ready[:n] {
			w.report(t)
		}
	}
}

// report takes the lock for each Token anew, so that a long batch holds nobody
// up.
func (w *Watcher) report(t Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.end(t); l != nil {
		l.PeerLeft(t)
	}
}

// FD is the descriptor of a connection, which stays its owner: it is valid until
// the connection is closed. For TLS, ask the connection underneath. An error
// comes with -1.
func FD(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if err := raw.Control(func(d uintptr) { fd = int(d) }); err != nil {
		return -1, err
	}
	return fd, nil
}
