package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// fair hands out a number of places in fair shares. The next place goes to the org with the
// fewest, and among equals to the one whose last place ended first. The same applies to the
// users within an org. So the work of one org, however large, delays another by at most one
// part of it. It is safe for concurrent use.
type fair struct {
	mu    sync.Mutex
	free  int
	ended uint64 // places ended so far, the clock of share.since
	orgs  map[string]*share

	granted func(org string) // notifies a test of each place; nil otherwise
}

// share is an org or one of its users, with the places it has and those it waits for.
type share struct {
	open, waits int
	since       uint64            // when its last place ended
	users       map[string]*share // of an org
	places      []*place          // that a user waits for
	preempt     chan struct{}     // of a user: one message for each place to give up
}

// place is one place, or the wait for it.
type place struct {
	fair      *fair
	org, user string
	ready     chan struct{} // closed once the place is granted
	open      bool
}

func newFair(places int) *fair { return &fair{free: places, orgs: map[string]*share{}} }

// errPreempted ends a turn whose place should go to another org.
var errPreempted = errors.New("batch: another org has a better claim to the place")

// enter waits for a place until ctx is done or stop has a message.
func (f *fair) enter(ctx context.Context, org, user string, stop <-chan struct{}) (*place, error) {
	p := &place{fair: f, org: org, user: user}
	f.mu.Lock()
	p.queue(false)
	f.mu.Unlock()
	return p, p.await(ctx, stop)
}

// waiting returns how many places a user waits for.
func (f *fair) waiting(org, user string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.orgs[org]; o != nil && o.users[user] != nil {
		return o.users[user].waits
	}
	return 0
}

// preempted returns a channel with a message for each place the user should give up,
// because the org or the user has more than its share and another one waits. It is nil for
// a user without places.
func (f *fair) preempted(org, user string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.orgs[org]; o != nil && o.users[user] != nil {
		return o.users[user].preempt
	}
	return nil
}

// await waits for the place. After an error there is none.
func (p *place) await(ctx context.Context, stop <-chan struct{}) error {
	select {
	case <-p.ready:
		return nil
	case <-stop:
		p.end()
		return errPreempted
	case <-ctx.Done():
		p.end()
		return context.Cause(ctx)
	}
}

// pass gives the place to a waiting org or user that has fewer, and waits for the next one,
// ahead of the user's other work. After an error there is no place.
func (p *place) pass(ctx context.Context) error {
	if !p.due() {
		return nil
	}
	f := p.fair
	f.mu.Lock()
	p.give()
	p.queue(true)
	f.mu.Unlock()
	return p.await(ctx, nil)
}

// due reports whether a waiting org or user has fewer places.
func (p *place) due() bool {
	f := p.fair
	f.mu.Lock()
	defer f.mu.Unlock()
	org := f.orgs[p.org]
	return fewer(f.orgs, org) || fewer(org.users, org.users[p.user])
}

func fewer(lines map[string]*share, than *share) bool {
	next := first(lines)
	return next != nil && next.open < than.open
}

// end returns the place, or ends the wait for it. A second end does nothing.
func (p *place) end() {
	f := p.fair
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.open {
		p.give()
	} else {
		p.withdraw()
	}
	f.grant()
	f.forget(p.org, p.user)
}

// queue adds the wait for a place. f.mu must be held, as for the functions below.
func (p *place) queue(ahead bool) {
	f := p.fair
	org := lineOf(f.orgs, p.org, f.ended)
	if org.users == nil {
		org.users = map[string]*share{}
	}
	user := lineOf(org.users, p.user, f.ended)
	if user.preempt == nil {
		user.preempt = make(chan struct{}, maxPreempted)
	}
	org.waits, user.waits = org.waits+1, user.waits+1
	p.ready = make(chan struct{})
	if ahead {
		user.places = slices.Insert(user.places, 0, p)
	} else {
		user.places = append(user.places, p)
	}
	f.grant()
	if !p.open {
		f.demand(org, user)
	}
}

// maxPreempted bounds the messages to a user that does not read them.
const maxPreempted = 256

func lineOf(lines map[string]*share, id string, since uint64) *share {
	if lines[id] == nil {
		lines[id] = &share{since: since}
	}
	return lines[id]
}

// demand makes the org with the most places give one up if it has more than the waiting org
// would have with all it waits for. Otherwise it considers the users of the waiting org.
func (f *fair) demand(org, user *share) {
	users, waiting := org.users, user
	if most := largest(f.orgs); most.left() > org.open+org.waits {
		users, waiting = most.users, nil
	}
	most := largest(users)
	if waiting != nil && most.left() <= waiting.open+waiting.waits {
		return
	}
	select {
	case most.preempt <- struct{}{}:
	default:
	}
}

// left returns how many places a share will have once it has given up those it should.
func (l *share) left() int {
	n := l.open - len(l.preempt)
	for _, user := range l.users {
		n -= len(user.preempt)
	}
	return n
}

func largest(lines map[string]*share) (most *share) {
	for _, l := range lines {
		if most == nil || l.left() > most.left() {
			most = l
		}
	}
	return most
}

// grant hands out the free places.
func (f *fair) grant() {
	for f.free > 0 {
		org := first(f.orgs)
		if org == nil {
			return
		}
		user := first(org.users)
		p := user.places[0]
		user.places = user.places[1:]
		f.free--
		org.waits, user.waits = org.waits-1, user.waits-1
		org.open, user.open = org.open+1, user.open+1
		p.open = true
		if f.granted != nil {
			f.granted(p.org)
		}
		close(p.ready)
	}
}

// first returns the share that gets the next place; nil if none waits.
func first(lines map[string]*share) (next *share) {
	for _, l := range lines {
		if l.waits > 0 && (next == nil || l.open < next.open || l.open == next.open && l.since < next.since) {
			next = l
		}
	}
	return next
}

// give frees an open place.
func (p *place) give() {
	f := p.fair
	org := f.orgs[p.org]
	user := org.users[p.user]
	f.free++
	f.ended++
	org.open, user.open = org.open-1, user.open-1
	p.open = false
	org.since, user.since = f.ended, f.ended
}

// withdraw ends the wait.
func (p *place) withdraw() {
	org := p.fair.orgs[p.org]
	if org == nil || org.users[p.user] == nil {
		return
	}
	user := org.users[p.user]
	if i := slices.Index(user.places, p); i >= 0 {
		user.places = slices.Delete(user.places, i, i+1)
		org.waits, user.waits = org.waits-1, user.waits-1
	}
}

// forget removes shares that neither have places nor wait.
func (f *fair) forget(org, user string) {
	o := f.orgs[org]
	if o == nil {
		return
	}
	if u := o.users[user]; u != nil && u.open+u.waits == 0 {
		delete(o.users, user)
	}
	if o.open+o.waits == 0 {
		delete(f.orgs, org)
	}
}
