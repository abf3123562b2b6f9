package relay

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

const beat = sse.Heartbeat

func TestHeartbeatsFillSilence(t *testing.T) {
	c := Config{Heartbeat: time.Second}
	s := play(t, c, time.Hour, buffer, write(hi), later(3200*time.Millisecond, stop, done))
	if s.body != hi+beat+beat+beat+stop+done {
		t.Errorf("%q", s.body)
	}
	s = play(t, c, 500*time.Millisecond, 1, write(role), later(2700*time.Millisecond, hi, stop, done))
	if s.await != os.ErrDeadlineExceeded || s.body != beat+beat+role+hi+stop+done {
		t.Errorf("before content: %v, %q", s.await, s.body)
	}
	s = play(t, c, time.Hour, buffer, later(2700*time.Millisecond, hi, stop, done))
	if s.body != hi+stop+done {
		t.Errorf("before the 200: %q", s.body)
	}
	s = play(t, c, time.Hour, buffer, write(hi), later(700*time.Millisecond, you), later(700*time.Millisecond, stop, done))
	if s.body != hi+you+stop+done {
		t.Errorf("without a silence: %q", s.body)
	}
}

func TestHeartbeatsDoNotWaitForWhatIsDropped(t *testing.T) {
	steps := []step{write(hi)}
	for range 5 {
		steps = append(steps, later(500*time.Millisecond, "data: null\n\n"))
	}
	s := play(t, Config{Heartbeat: time.Second}, time.Hour, buffer, append(steps, later(200*time.Millisecond, stop, done))...)
	if s.body != hi+beat+beat+stop+done {
		t.Errorf("%q", s.body)
	}
}

func TestAHeartbeatDoesNotStandInsideAnEvent(t *testing.T) {
	s := play(t, Config{Heartbeat: time.Second}, 0, 5, write(hi[:40]), later(3500*time.Millisecond, hi[40:], stop, done))
	if s.body != beat+beat+beat+hi+stop+done {
		t.Errorf("%q", s.body)
	}
}

func TestNothingButContentStopsTheFirstTokenTimeout(t *testing.T) {
	c := Config{FirstToken: since(4 * time.Second), Idle: time.Second, Total: since(30 * time.Second), Heartbeat: time.Second}
	f := func(early time.Duration, steps ...step) {
		t.Helper()
		s := play(t, c, early, buffer, steps...)
		if s.Outcome != FirstTokenTimeout || s.took != 4*time.Second {
			t.Errorf("%v after %v", s.Outcome, s.took)
		}
	}
	f(time.Hour)
	f(time.Second)
	f(time.Hour, write(role), later(time.Second, role), later(time.Second, ": comment\n\n"), later(time.Second, role))
	f(time.Hour, later(5*time.Second, hi, stop, done))
	f(4*time.Second, later(5*time.Second, hi, stop, done)) // both at once: the failure is certain
	s := play(t, c, time.Hour, buffer, later(2500*time.Millisecond, hi), later(500*time.Millisecond, hi), later(500*time.Millisecond, hi, stop, done))
	if s.Outcome != Success || s.took != 3500*time.Millisecond {
		t.Errorf("%v after %v", s.Outcome, s.took)
	}
}

func TestTheIdleTimeoutRunsBetweenDataEvents(t *testing.T) {
	c := Config{Idle: 2 * time.Second}
	f := func(c Config, want Outcome, took time.Duration, steps ...step) {
		t.Helper()
		s := play(t, c, time.Hour, buffer, steps...)
		if s.Outcome != want || s.took != took || s.err != io.EOF {
			t.Errorf("%v after %v, want %v after %v", s.Outcome, s.took, want, took)
		}
	}
	second := time.Second
	f(c, Success, 6*second, write(role), later(3*second, hi), later(1500*time.Millisecond, hi), later(1500*time.Millisecond, stop, done))
	f(c, IdleTimeout, 2*second, write(hi), later(second, ": c\n\n"), later(900*time.Millisecond, ": c\n\n"), later(900*time.Millisecond, ": c\n\n"))
	f(c, IdleTimeout, 2*second, write(hi), later(second, "data:\n\n"), later(500*time.Millisecond, "event: keepalive\n\n"))
	f(c, IdleTimeout, 3*second, write(hi), later(second, role), later(2500*time.Millisecond, hi))
	c.Heartbeat = 700 * time.Millisecond // beats are not life of the upstream
	f(c, IdleTimeout, 2*second, write(hi))
	f(Config{Idle: 2 * second, Total: since(time.Second)}, TotalTimeout, second, write(hi))
	f(Config{Idle: second, Total: since(time.Second)}, TotalTimeout, second, write(hi))
	f(Config{Idle: second, Total: since(2 * time.Second)}, IdleTimeout, second, write(hi))
	f(Config{Heartbeat: second}, Success, 100*second, write(hi), later(100*second, stop, done))
	f(Config{}, Success, 100*time.Hour, write(hi), later(100*time.Hour, stop, done))
}

func TestASteadyStreamEndsAtTheTotalTimeout(t *testing.T) {
	steps := []step{write(hi)}
	for range 100 {
		steps = append(steps, later(100*time.Millisecond, you))
	}
	s := play(t, Config{Idle: time.Second, Total: since(2050 * time.Millisecond)}, time.Hour, buffer, steps...)
	if s.Outcome != TotalTimeout || s.took != 2050*time.Millisecond || s.Events != 21 {
		t.Errorf("%+v", s)
	}
}

func TestTheIdleTimeoutDoesNotRunWhileTheClientIsNotReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Run
		r.Start(&Config{Idle: time.Second, Heartbeat: 600 * time.Millisecond, Door: plainDoor{}},
			newWire(t, chunk.Chat, write(hi), later(500*time.Millisecond, you), later(5*time.Second, stop), later(500*time.Millisecond, done)))
		p := make([]byte, buffer)
		f := func(away time.Duration, want string) {
			t.Helper()
			time.Sleep(away)
			if n, err := r.Read(p); err != nil || string(p[:n]) != want {
				t.Errorf("got %q, %v; want %q", p[:n], err, want)
			}
		}
		f(0, hi)
		f(3*time.Second, you)          // came at 0.5, read at 3
		f(0, beat)                     // 3.6: 0.6 of idle are used
		f(2500*time.Millisecond, stop) // came at 5.5, while the client was away with the beat
		f(0, done)                     // came at 6
		if res := r.Result(); res.Outcome != Success || res.Gap != 600*time.Millisecond {
			t.Errorf("%v, gap %v", res.Outcome, res.Gap)
		}
	})
}

func TestWhatIsThereComesBeforeATimeout(t *testing.T) {
	past := time.Now().Add(-time.Second)
	f := func(c Config, end string) {
		t.Helper()
		c.Door = plainDoor{}
		var r Run
		r.Start(&c, &list{items: items([]byte{0, 1, 2}), err: os.ErrDeadlineExceeded})
		if err := r.Await(past); err != nil {
			t.Fatalf("Await: %v", err)
		}
		p := make([]byte, buffer)
		if n, err := r.Read(p); err != nil || string(p[:n]) != role+hi+you {
			t.Errorf("got %q, %v", p[:n], err)
		}
		if end != "" {
			if body, _ := readAll(t, &r, buffer); body != end {
				t.Errorf("got %q", body)
			}
		}
	}
	f(Config{Total: past, FirstToken: past}, told("total_timeout"))
	f(Config{FirstToken: past, Idle: time.Millisecond}, told("idle_timeout"))
	f(Config{}, "")
}

func TestTimesOfContentAreThoseOfItsArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var r Run
		r.Start(&Config{Door: plainDoor{}}, newWire(t, chunk.Chat,
			later(time.Second, role), later(time.Second, hi), later(3*time.Second, you), later(time.Second, stop, done)))
		if err := r.Await(start.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		readAll(t, &r, buffer)
		res := r.Result()
		if res.FirstContent.Sub(start) != 2*time.Second || res.LastContent.Sub(start) != 5*time.Second || res.Gap != 3*time.Second {
			t.Errorf("first %v, last %v, gap %v", res.FirstContent.Sub(start), res.LastContent.Sub(start), res.Gap)
		}
	})
}
