//go:build unix

package watch

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const (
	soon  = 5 * time.Second       // within which a report comes, with more than tenfold room
	quiet = 30 * time.Millisecond // without a report there is none
)

// each runs f with every way of watching that can run on this system.
func each(t *testing.T, f func(t *testing.T, w *Watcher, bytesHideTheEnd bool)) {
	run := func(name string, hidden bool, make func() (notifier, error)) {
		t.Run(name, func(t *testing.T) {
			n, err := make()
			if err != nil {
				t.Fatal(err)
			}
			w := start(n)
			defer w.Close()
			f(t, w, hidden)
		})
	}
	run("system", leftPeeks, newNotifier)
	run("poll", leftPeeks, func() (notifier, error) { return newPoll(systemProbe(), time.Millisecond), nil })
	run("poll and peek", true, func() (notifier, error) {
		return newPoll(probe{left: unix.POLLIN | unix.POLLHUP, peek: true}, time.Millisecond), nil
	})
}

// told is a Listener that hands its calls on.
type told chan Token

func (l told) PeerLeft(t Token) { l <- t }

func (l told) expect(t *testing.T, want Token) {
	t.Helper()
	select {
	case got := <-l:
		if got != want {
			t.Fatalf("told of %x, want %x", got, want)
		}
	case <-time.After(soon):
		t.Fatal("not told")
	}
}

func (l told) expectNothing(t *testing.T) {
	t.Helper()
	select {
	case <-l:
		t.Fatal("told of a peer that has not left")
	case <-time.After(quiet):
	}
}

// tcpPair gives both ends of a connection, and the descriptor of ours.
func tcpPair(t testing.TB) (ours, peer *net.TCPConn, fd int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours, peer = accepted.(*net.TCPConn), dialled.(*net.TCPConn)
	t.Cleanup(func() { ours.Close(); peer.Close() })
	if fd, err = FD(ours); err != nil {
		t.Fatal(err)
	}
	return ours, peer, fd
}

func add(t testing.TB, w *Watcher, fd int, m Mode, l Listener) Token {
	t.Helper()
	token, err := w.Add(fd, m, l)
	if err != nil || token == 0 {
		t.Fatalf("Add: token %x, %v", token, err)
	}
	return token
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestAPeerThatLeavesIsReportedOnce(t *testing.T) {
	f := func(name string, leave func(t *testing.T, ours, peer *net.TCPConn), unread bool) {
		for _, mode := range []Mode{Left, Readable} {
			if unread && mode == Readable {
				continue
			}
			for _, already := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					each(t, func(t *testing.T, w *Watcher, bytesHideTheEnd bool) {
						if unread && bytesHideTheEnd {
							t.Skip("unread bytes hide the end")
						}
						ours, peer, fd := tcpPair(t)
						l := make(told, 2)
						if already {
							leave(t, ours, peer)
							waitUntil(t, "Gone", func() bool { return leftPeeks && unread || Gone(fd) })
							l.expect(t, add(t, w, fd, mode, l))
						} else {
							token := add(t, w, fd, mode, l)
							l.expectNothing(t)
							leave(t, ours, peer)
							l.expect(t, token)
						}
						l.expectNothing(t)
						add(t, w, fd, mode, l) // the descriptor is free for a new watch
					})
				})
			}
		}
	}
	f("close", func(t *testing.T, _, peer *net.TCPConn) { peer.Close() }, false)
	f("reset", func(t *testing.T, _, peer *net.TCPConn) { peer.SetLinger(0); peer.Close() }, false)
	f("half close", func(t *testing.T, _, peer *net.TCPConn) { peer.CloseWrite() }, false)
	f("close behind bytes that wait unread", func(t *testing.T, _, peer *net.TCPConn) {
		peer.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		peer.Close()
	}, true)
	f("close while we write", func(t *testing.T, ours, peer *net.TCPConn) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				if _, err := ours.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		t.Cleanup(func() { ours.Close(); <-done })
		peer.Read(make([]byte, 1))
		peer.Close() // with bytes unread, which resets
	}, false)
}

func TestBytesAreReportedOnlyWhereTheyAreAskedFor(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		_, peer, fd := tcpPair(t)
		l := make(told, 2)
		token := add(t, w, fd, Left, l)
		peer.Write([]byte("a"))
		l.expectNothing(t)
		peer.Write([]byte("b"))
		l.expectNothing(t)
		w.Remove(token)

		token = add(t, w, fd, Readable, l) // they wait already
		l.expect(t, token)

		_, peer, fd = tcpPair(t)
		token = add(t, w, fd, Readable, l)
		l.expectNothing(t)
		peer.Write([]byte("a"))
		l.expect(t, token)
		peer.Write([]byte("b"))
		l.expectNothing(t)
	})
}

func TestOurReadsAndWritesGoOnWhileWatched(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer, fd := tcpPair(t)
		l := make(told, 1)
		token := add(t, w, fd, Left, l)
		ours.SetDeadline(time.Now().Add(soon))
		peer.SetDeadline(time.Now().Add(soon))
		for range 100 {
			var b [1]byte
			for _, pair := range [][2]net.Conn{{ours, peer}, {peer, ours}} {
				if _, err := pair[0].Write(b[:]); err != nil {
					t.Fatal(err)
				}
				if _, err := pair[1].Read(b[:]); err != nil {
					t.Fatal(err)
				}
			}
		}
		ours.SetReadDeadline(time.Now().Add(-time.Second)) // a timeout of ours is no leaving
		ours.Read(make([]byte, 1))
		l.expectNothing(t)
		peer.Close()
		l.expect(t, token)
	})
}

// tlsPair gives both ends after the handshake; the session tickets that TLS 1.3
// sends behind it are read only with the first bytes of the server.
func tlsPair(t *testing.T) (client, server *tls.Conn, clientFD, serverFD int) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS() // for its certificate
	t.Cleanup(s.Close)
	ours, peer, fd := tcpPair(t)
	server = tls.Server(ours, &tls.Config{Certificates: s.TLS.Certificates})
	client = tls.Client(peer, &tls.Config{InsecureSkipVerify: true})
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-failed); err != nil {
		t.Fatal(err)
	}
	peerFD, err := FD(peer)
	if err != nil {
		t.Fatal(err)
	}
	return client, server, peerFD, fd
}

func TestATLSPeerThatLeavesIsReported(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, bytesHideTheEnd bool) {
		if bytesHideTheEnd {
			t.Skip("close_notify hides the end")
		}
		client, _, _, fd := tlsPair(t)
		l := make(told, 1)
		token := add(t, w, fd, Left, l)
		client.Write([]byte("pipelined"))
		l.expectNothing(t)
		client.Close()
		l.expect(t, token)
	})
}

func TestATLSConnectionIsQuietOnceItsTicketsAreRead(t *testing.T) {
	client, server, fd, _ := tlsPair(t)
	if Gone(fd) {
		t.Fatal("gone though nobody left")
	}
	server.Write([]byte("a"))
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !Quiet(fd) || Gone(fd) {
		t.Fatalf("after the answer was read: Quiet %v, Gone %v", Quiet(fd), Gone(fd))
	}
	server.Close()
	waitUntil(t, "closed", func() bool { return !Quiet(fd) && (leftPeeks || Gone(fd)) })
}

func TestQuietAndGoneTellBytesFromLeaving(t *testing.T) {
	f := func(name string, act func(ours, peer *net.TCPConn), wantQuiet, wantGone bool) {
		t.Helper()
		ours, peer, fd := tcpPair(t)
		if !Quiet(fd) || Gone(fd) {
			t.Errorf("%s, before: Quiet %v, Gone %v", name, Quiet(fd), Gone(fd))
		}
		act(ours, peer)
		end := time.Now().Add(soon)
		for Quiet(fd) != wantQuiet || Gone(fd) != wantGone {
			if time.Now().After(end) {
				t.Fatalf("%s: Quiet %v, Gone %v", name, Quiet(fd), Gone(fd))
			}
			time.Sleep(time.Millisecond)
		}
	}
	f("close", func(_, peer *net.TCPConn) { peer.Close() }, false, true)
	f("half close", func(_, peer *net.TCPConn) { peer.CloseWrite() }, false, true)
	f("reset", func(_, peer *net.TCPConn) { peer.SetLinger(0); peer.Close() }, false, true)
	f("a byte", func(_, peer *net.TCPConn) { peer.Write([]byte("a")) }, false, false)
	f("a byte that was read", func(ours, peer *net.TCPConn) {
		peer.Write([]byte("a"))
		ours.Read(make([]byte, 1))
	}, true, false)
}

func TestAClosedDescriptorIsNeitherQuietNorThere(t *testing.T) {
	const fd = 1 << 20 // higher than any that is open
	if Quiet(fd) || !Gone(fd) {
		t.Fatalf("Quiet %v, Gone %v", Quiet(fd), Gone(fd))
	}
}

func TestAmongAThousandOnlyThoseThatLeaveAreReported(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		const total, leaving = 1000, 100
		l := make(told, total)
		peers := map[Token]net.Conn{}
		for range total {
			_, peer, fd := tcpPair(t)
			peers[add(t, w, fd, Left, l)] = peer
		}
		left := map[Token]bool{}
		for token, peer := range peers { // in random order
			peer.Close()
			if left[token] = true; len(left) == leaving {
				break
			}
		}
		for range leaving {
			select {
			case token := <-l:
				if !left[token] {
					t.Fatalf("told of %x, which stayed, or told of it twice", token)
				}
				delete(left, token)
			case <-time.After(soon):
				t.Fatalf("%d not told", len(left))
			}
		}
		l.expectNothing(t)
	})
}

// socketPair is quicker to make than a TCP connection.
func socketPair(t testing.TB) (ours, peer int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// stressed has no lock of its own: that Remove is a barrier is what keeps the
// race detector silent.
type stressed struct {
	removed bool
	calls   int
	token   Token
	wrong   *atomic.Int64
}

func (s *stressed) PeerLeft(t Token) {
	if s.calls++; s.removed || s.calls > 1 {
		s.wrong.Add(1)
	}
	s.token = t
}

func TestRemoveIsABarrierWhileDescriptorsAreReused(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		const workers, rounds = 8, 500
		var wrong, calls, silent atomic.Int64
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(worker)))
				var stale []Token
				for range rounds {
					fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
					if err != nil {
						t.Error(err)
						return
					}
					ours, peer := fds[0], fds[1]
					s := &stressed{wrong: &wrong}
					token, err := w.Add(ours, Mode(random.IntN(2)), s)
					if err != nil {
						t.Error(err)
						return
					}
					leaves := random.IntN(2) == 0
					if leaves {
						unix.Close(peer)
						for range random.IntN(4) {
							runtime.Gosched()
						}
						if random.IntN(8) == 0 {
							time.Sleep(2 * time.Millisecond)
						}
					}
					w.Remove(token)
					for _, old := range stale { // none is another's
						w.Remove(old)
					}
					if s.removed = true; s.calls == 1 {
						if calls.Add(1); !leaves || s.token != token {
							wrong.Add(1)
						}
					} else if silent.Add(1); s.calls != 0 {
						wrong.Add(1)
					}
					if stale = append(stale, token); len(stale) > 8 {
						stale = stale[1:]
					}
					if !leaves {
						unix.Close(peer) // nobody is told of it
					}
					if random.IntN(8) == 0 {
						time.Sleep(time.Millisecond) // so that others come between
					}
					unix.Close(ours)
				}
			})
		}
		all.Wait()
		if wrong.Load() != 0 {
			t.Fatalf("%d wrong calls", wrong.Load())
		}
		if calls.Load() == 0 || silent.Load() == 0 {
			t.Fatalf("%d were told, %d not: the test tried only one", calls.Load(), silent.Load())
		}
		if n := len(w.slots); n > workers {
			t.Fatalf("%d slots for %d watches at a time", n, workers)
		}
	})
}

// held is a Listener that stays in its call.
type held struct{ entered, leave chan struct{} }

func (h held) PeerLeft(Token) { close(h.entered); <-h.leave }

func TestRemoveWaitsForACallThatRuns(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		defer unix.Close(ours)
		h := held{make(chan struct{}), make(chan struct{})}
		token := add(t, w, ours, Left, h)
		unix.Close(peer)
		<-h.entered
		removed := make(chan struct{})
		go func() { w.Remove(token); close(removed) }()
		select {
		case <-removed:
			t.Error("Remove returned while the call ran")
		case <-time.After(quiet):
		}
		close(h.leave)
		<-removed
	})
}

func TestAReportThatWasFetchedForARemovedWatchGoesToNobody(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		defer unix.Close(ours)
		defer unix.Close(peer)
		first, second := make(told, 1), make(told, 1)
		old := add(t, w, ours, Left, first)
		w.Remove(old)
		token := add(t, w, ours, Left, second)
		if token == old || token.index() != old.index() {
			t.Fatalf("%x after %x, want its place with another generation", token, old)
		}
		w.report(old)
		w.report(newToken(1000, 1))
		w.Remove(old)
		first.expectNothing(t)
		second.expectNothing(t)
		w.report(token)
		second.expect(t, token)
	})
}

func TestAGenerationIsNeverZero(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		defer unix.Close(ours)
		defer unix.Close(peer)
		w.Remove(add(t, w, ours, Left, make(told, 1)))
		w.slots[0].generation = ^uint32(0)
		last := add(t, w, ours, Left, make(told, 1))
		w.Remove(last)
		if token := add(t, w, ours, Left, make(told, 1)); token.generation() != 1 {
			t.Fatalf("%x after %x", token, last)
		}
	})
}

func TestADescriptorThatCanNotBeWatchedIsAnError(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		defer unix.Close(ours)
		defer unix.Close(peer)
		f := func(fd int) {
			t.Helper()
			if token, err := w.Add(fd, Left, make(told, 1)); token != 0 || err == nil {
				t.Errorf("Add(%d) = %x, %v", fd, token, err)
			}
		}
		f(-1)
		token := add(t, w, ours, Left, make(told, 1))
		f(ours) // watched already
		w.Remove(token)
		w.Remove(0)
		add(t, w, ours, Left, make(told, 1))
		if n := len(w.slots); n > 2 {
			t.Errorf("%d slots: those of failed calls are lost", n)
		}
	})
}

func TestCloseEndsTheGoroutineAndAllWatches(t *testing.T) {
	before := goleak.IgnoreCurrent()
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		l := make(told, 1)
		token := add(t, w, ours, Left, l)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		unix.Close(peer)
		l.expectNothing(t)
		if token, err := w.Add(ours, Left, l); token != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Add after Close: %x, %v", token, err)
		}
		w.Remove(token)
		unix.Close(ours)
		goleak.VerifyNone(t, before)
	})
}

func TestCloseGivesItsDescriptorsBack(t *testing.T) {
	lowest := func() int {
		ours, peer := socketPair(t)
		unix.Close(peer)
		unix.Close(ours)
		return max(ours, peer)
	}
	before := lowest()
	for range 100 {
		w, err := New()
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	if after := lowest(); after > before+2 {
		t.Fatalf("the lowest free descriptor was %d, is %d", before, after)
	}
}

func TestFDIsTheDescriptorOfAnOpenConnection(t *testing.T) {
	ours, _, fd := tcpPair(t)
	address, err := unix.Getpeername(fd)
	if err != nil {
		t.Fatal(err)
	}
	if port := address.(*unix.SockaddrInet4).Port; port != ours.RemoteAddr().(*net.TCPAddr).Port {
		t.Fatalf("a descriptor with peer port %d, want %v", port, ours.RemoteAddr())
	}
	ours.Close()
	if fd, err := FD(ours); fd != -1 || err == nil {
		t.Fatalf("FD of a closed connection: %d, %v", fd, err)
	}
}

// idle is a Listener that allocates nothing.
type idle struct{}

func (*idle) PeerLeft(Token) {}

func TestWatchingAllocatesNothing(t *testing.T) {
	each(t, func(t *testing.T, w *Watcher, _ bool) {
		ours, peer := socketPair(t)
		defer unix.Close(ours)
		defer unix.Close(peer)
		l := &idle{}
		if n := testing.AllocsPerRun(1000, func() {
			token, err := w.Add(ours, Left, l)
			if err != nil {
				t.Fatal(err)
			}
			w.Remove(token)
			if Gone(ours) || !Quiet(ours) {
				t.Fatal("gone")
			}
		}); n != 0 {
			t.Fatalf("%v allocations", n)
		}
	})
}

func TestAReportAllocatesNothing(t *testing.T) {
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ours, peer := socketPair(t)
	defer unix.Close(ours)
	unix.Close(peer)
	l := make(told, 1)
	var listener Listener = l
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := w.Add(ours, Left, listener); err != nil {
			t.Fatal(err)
		}
		<-l
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAddRemove(b *testing.B) {
	w, err := New()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	_, _, fd := tcpPair(b)
	l := &idle{}
	b.ReportAllocs()
	for b.Loop() {
		token, err := w.Add(fd, Left, l)
		if err != nil {
			b.Fatal(err)
		}
		w.Remove(token)
	}
}

func BenchmarkQuiet(b *testing.B) {
	_, _, fd := tcpPair(b)
	b.ReportAllocs()
	for b.Loop() {
		if !Quiet(fd) {
			b.Fatal("not quiet")
		}
	}
}

// moment is a Listener that notes when it was told.
type moment chan time.Time

func (m moment) PeerLeft(Token) { m <- time.Now() }

// BenchmarkDetection measures from a peer's close to the call, in a process that
// has nothing else to do.
func BenchmarkDetection(b *testing.B) {
	w, err := New()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	l := make(moment, 1)
	var took []time.Duration
	for b.Loop() {
		ours, peer, fd := tcpPair(b)
		add(b, w, fd, Left, l)
		time.Sleep(200 * time.Microsecond)
		begin := time.Now()
		peer.Close()
		took = append(took, (<-l).Sub(begin))
		ours.Close()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
