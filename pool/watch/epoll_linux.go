package watch

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How poll(2) tells that a peer left: Linux has a bit for it.
const (
	leftEvents = unix.POLLRDHUP
	leftPeeks  = false
)

// epoll is a notifier on epoll(7). Its descriptor waits in Go's own poller, like
// a socket, so that waiting takes neither a thread nor, until the scheduler
// notices, a processor; closing it is what wakes the goroutine.
type epoll struct {
	fd   int
	file *os.File
	raw  syscall.RawConn

	fetch  func(fd uintptr) bool // made once: a closure for each wait would be allocated
	events [batch]unix.EpollEvent
	n      int // of events
}

func newNotifier() (notifier, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // what makes os.NewFile hand it to Go's poller
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	e := &epoll{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	e.fetch = e.fetchInto
	if err := e.file.SetReadDeadline(time.Time{}); err != nil { // fails where Go's poller didn't take it
		e.file.Close()
		return nil, err
	}
	if e.raw, err = e.file.SyscallConn(); err != nil {
		e.file.Close()
		return nil, err
	}
	return e, nil
}

// add asks edge-triggered, so that a descriptor closed without Remove, but still
// open in another process, can't keep the goroutine busy. EPOLL_CTL_ADD takes a
// state that holds already for an edge. EPOLLHUP and EPOLLERR come unasked.
func (e *epoll) add(fd int, m Mode, t Token) error {
	event := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLET,
		Fd:     int32(t.index()), // both are free for the caller's use, 64 bits in all
		Pad:    int32(t.generation()),
	}
	if m == Readable {
		event.Events |= unix.EPOLLIN
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, fd, &event))
}

// remove can't fail but for a descriptor that was closed too early, which the
// kernel has removed by itself.
func (e *epoll) remove(fd int) {
	unix.EpollCtl(e.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

func (e *epoll) wait(ready []Token) (int, error) {
	if err := e.raw.Read(e.fetch); err != nil {
		return 0, err
	}
	for i, event := range e.events[:e.n] {
		ready[i] = newToken(int(event.Fd), uint32(event.Pad))
	}
	return e.n, nil
}

// fetchInto is false where there is nothing, and Go's poller has to wait.
func (e *epoll) fetchInto(fd uintptr) bool {
	for {
		n, err := unix.EpollWait(int(fd), e.events[:], 0)
		if err == unix.EINTR {
			continue
		}
		e.n = max(n, 0)
		return e.n > 0
	}
}

func (e *epoll) close() error { return e.file.Close() }
