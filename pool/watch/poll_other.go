//go:build unix && !linux

package watch

import (
	"time"

	"golang.org/x/sys/unix"
)

// How poll(2) tells that a peer left: Darwin sets POLLHUP at the end of what the
// peer sends if it is asked for, the other systems only at the end of both
// directions.
const (
	leftEvents = unix.POLLIN | unix.POLLHUP
	leftPeeks  = true
)

// pollEvery is how late a report may be.
const pollEvery = 10 * time.Millisecond

func newNotifier() (notifier, error) { return newPoll(systemProbe(), pollEvery), nil }
