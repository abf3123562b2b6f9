//go:build unix

package watch

import (
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Gone reports whether the peer of the socket fd has left, in the sense of Left.
// It doesn't wait, and allocates nothing.
func Gone(fd int) bool { return systemProbe().holds(fd, Left) }

// Quiet reports whether the socket fd has neither a byte to read nor a peer that
// has left: only then may a kept connection be used again. It asks poll(2),
// where peeking would take what TLS sends on its own for an answer. It doesn't
// wait, and allocates nothing.
func Quiet(fd int) bool { return !systemProbe().holds(fd, Readable) }

// probe is how poll(2) tells Left. Not every system sets a bit for a peer that
// shut down its sending side only; where none is, the end has to be peeked at,
// and bytes that wait unread hide it.
type probe struct {
	left int16 // events to ask for
	peek bool
}

func systemProbe() probe { return probe{left: leftEvents, peek: leftPeeks} }

func (p probe) events(m Mode) int16 {
	if m == Readable {
		return p.left | unix.POLLIN
	}
	return p.left
}

// fired judges what poll(2) said.
func (p probe) fired(fd int, m Mode, revents int16) bool {
	if m == Readable || revents&^unix.POLLIN != 0 {
		return revents != 0
	}
	return p.peek && revents != 0 && atEnd(fd)
}

// holds takes a socket that can't be asked for one whose peer has left.
func (p probe) holds(fd int, m Mode) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: p.events(m)}}
	for {
		_, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err != nil || p.fired(fd, m, fds[0].Revents)
	}
}

// atEnd reports whether the next read would give the end, or an error.
func atEnd(fd int) bool {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			return n == 0
		case unix.EINTR:
		default:
			return err != unix.EAGAIN
		}
	}
}

// poll is a notifier for systems without epoll(7): it asks poll(2) about all
// sockets at intervals.
type poll struct {
	probe  probe
	ticker *time.Ticker
	quit   chan struct{}

	mu     sync.Mutex
	place  map[int]int // of a descriptor in the slices below
	fds    []unix.PollFd
	modes  []Mode
	tokens []Token
	next   int // where the next wait begins, so that a full batch starves nobody
}

func newPoll(p probe, every time.Duration) *poll {
	return &poll{probe: p, ticker: time.NewTicker(every), quit: make(chan struct{}), place: map[int]int{}}
}

func (p *poll) add(fd int, m Mode, t Token) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.place[fd]; ok {
		return os.NewSyscallError("watch", unix.EEXIST)
	}
	p.place[fd] = len(p.fds)
	p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: p.probe.events(m)})
	p.modes = append(p.modes, m)
	p.tokens = append(p.tokens, t)
	return nil
}

func (p *poll) remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, last := p.place[fd], len(p.fds)-1
	p.place[int(p.fds[last].Fd)] = i
	p.fds[i], p.modes[i], p.tokens[i] = p.fds[last], p.modes[last], p.tokens[last]
	p.fds, p.modes, p.tokens = p.fds[:last], p.modes[:last], p.tokens[:last]
	delete(p.place, fd)
}

func (p *poll) wait(ready []Token) (int, error) {
	for {
		select {
		case <-p.quit:
			return 0, net.ErrClosed
		case <-p.ticker.C:
		}
		if n := p.scan(ready); n > 0 {
			return n, nil
		}
	}
}

// scan asks about all sockets. The lock keeps their descriptors from being
// closed meanwhile, since Remove comes before that.
func (p *poll) scan(ready []Token) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fds) == 0 {
		return 0
	}
	if n, err := unix.Poll(p.fds, 0); err != nil || n == 0 {
		return 0 // an interrupted call is made again at the next tick
	}
	n := 0
	for range p.fds {
		p.next = (p.next + 1) % len(p.fds)
		f := p.fds[p.next]
		if p.probe.fired(int(f.Fd), p.modes[p.next], f.Revents) {
			ready[n] = p.tokens[p.next]
			if n++; n == len(ready) {
				break
			}
		}
	}
	return n
}

func (p *poll) close() error {
	p.ticker.Stop()
	close(p.quit)
	return nil
}
