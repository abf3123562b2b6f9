package pool

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// turn is one Stream's wait for a connection: first for a place among
// maxConns, then for the dial. It is the rare path; an idle connection needs
// none.
type turn struct {
	up      *Upstream
	connect time.Duration
	fresh   bool       // a kept connection won't do: one has just turned out to be stale
	ch      chan grant // of one, so that delivering never waits
	settled atomic.Bool
	cancel  context.CancelFunc // of the dial, once it runs; by up.mu
}

// grant is what a turn ends in.
type grant struct {
	conn *conn
	err  error
	took time.Duration // dialling, TLS handshake included
}

func newTurn(u *Upstream, fresh bool, connect time.Duration) *turn {
	return &turn{up: u, fresh: fresh, connect: connect, ch: make(chan grant, 1)}
}

// deliver ends the turn, or gives the grant back where nobody waits any more.
func (t *turn) deliver(g grant) {
	if t.settled.CompareAndSwap(false, true) {
		t.ch <- g
		return
	}
	t.up.giveBack(g)
}

// abandon ends a turn that nobody waits for any more, and its dial with it.
func (t *turn) abandon() {
	u := t.up
	u.mu.Lock()
	if i := slices.Index(u.waiters, t); i >= 0 {
		u.waiters = slices.Delete(u.waiters, i, i+1)
	}
	cancel := t.cancel
	u.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if !t.settled.CompareAndSwap(false, true) {
		u.giveBack(<-t.ch)
	}
}

// giveBack keeps what a Stream no longer wants. A new TLS connection is closed:
// its session tickets are still unread, which looks like unasked-for bytes.
func (u *Upstream) giveBack(g grant) {
	switch {
	case g.conn == nil:
	case u.tls != nil && !g.conn.reused:
		u.discard(g.conn)
	default:
		u.put(g.conn)
	}
}

// startDial dials for t in the background, so that a dial can be left and a
// client be told that it takes long; u.mu is held, and u.open counts it.
func (u *Upstream) startDial(t *turn) {
	ctx, cancel := context.WithTimeout(context.Background(), t.connect)
	t.cancel = cancel
	u.tasks.Add(1)
	go func() {
		defer u.tasks.Done()
		defer cancel()
		start := time.Now()
		c, err := u.dial(ctx)
		if err != nil {
			u.release()
			reason := NoConnection
			if ctx.Err() == context.DeadlineExceeded || isTimeout(err) {
				reason = ConnectTimeout
			}
			err = &Failure{Reason: reason, Err: err}
		}
		t.deliver(grant{conn: c, err: err, took: time.Since(start)})
	}()
}
