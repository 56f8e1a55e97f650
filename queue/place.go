package queue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// Position estimates how many jobs run before a waiting one, and the time until
// its turn at the pool's quota (0 when the pool has no rate).
//
// Older jobs of its flow go first; each turn of its flow costs one turn of
// every user of its org, each turn of the org one of every org with waiting
// jobs: (own ahead + 1) x users x orgs - 1, at most all that wait in its class,
// plus all that wait in higher classes. The time is that many requests and the
// mean tokens of waiting jobs over the quota, at least the rest of a park or
// block. A job that does not wait has position 0.
func (q *Queue) Position(ctx context.Context, j *Job) (ahead int, eta time.Duration, err error) {
	at, err := q.reader.position(ctx, j)
	return at.ahead, max(at.turn, at.parked), err
}

// position is where a job is in its pool: turn is when the provider's quota reaches it,
// parked how long a limit that refused rests.
type position struct {
	ahead        int
	turn, parked time.Duration
	gone         bool // it does not wait
}

func (r *reader) position(ctx context.Context, j *Job) (position, error) {
	p, err := r.settings.pool(j.Pool)
	if err != nil {
		return position{}, err
	}
	if j.member == "" {
		j, err = r.job(ctx, j.Org, j.ID)
		if err != nil {
			return position{}, err
		}
	}
	reply, err := r.scripts.eval(ctx, "place", placeScript, p.keys, uint8(j.Class), j.member)
	if err != nil || reply == "gone" {
		return position{gone: true}, err
	}
	w, err := words("place", reply, 4)
	if err != nil {
		return position{}, err
	}
	jobs, _ := strconv.ParseInt(w[0], 10, 64)
	tokens, _ := strconv.ParseInt(w[1], 10, 64)
	return position{ahead: int(jobs), turn: max(p.drainTime(jobs, tokens), micros(w[2])), parked: micros(w[3])}, nil
}

// Place is where a waiting job stands: in the queue, and with its limits.
type Place struct {
	Ahead int
	// ETA is when it may run: the later of its turn at the provider's quota and of the time
	// at which its limits have room for what it will hold. It is an estimate, and negative
	// when time alone does not make the room.
	ETA time.Duration
	// WaitingFor is the later of the two: "limit:<id>", "cap" for a spend cap of all orgs,
	// or "pool:<id>".
	WaitingFor string
	Room       *guard.Room // nil when its limits are not known any more
}

// Rooms tells where the limits of a call that waits stand: Guard.Room.
type Rooms func(context.Context, guard.Waiter) (*guard.Room, error)

// Place returns where a waiting job stands. One that does not wait has the zero Place, but
// for its Room.
func (q *Queue) Place(ctx context.Context, rooms Rooms, j *Job) (Place, error) {
	room, err := rooms(ctx, j.waiter())
	if errors.Is(err, budget.ErrUnavailable) {
		return Place{}, err
	}
	if err != nil { // its org or model is not configured any more: its turn will tell
		room = nil
	}
	at, err := q.reader.position(ctx, j)
	if err != nil {
		return Place{}, err
	}
	if again := time.Until(j.Again); at.gone && j.State == Queued && again > 0 { // until the next attempt
		at = position{turn: again}
	} else if at.gone {
		return Place{Room: room}, nil
	}
	place := Place{Ahead: at.ahead, ETA: max(at.turn, at.parked), WaitingFor: "pool:" + j.Pool, Room: room}
	limit, wait := room.Wait()
	switch {
	case wait >= guard.Endless:
		place.ETA, place.WaitingFor = -1, limit
	case limit != "" && max(wait, at.parked) >= at.turn:
		place.ETA, place.WaitingFor = max(place.ETA, wait), limit
	}
	return place, nil
}

// waiter is the job as its limits see it.
func (j *Job) waiter() guard.Waiter {
	return guard.Waiter{
		Org: j.Org, User: j.User, Key: j.Key, IP: j.IP, Model: j.Model, Endpoint: j.Endpoint,
		Want: budget.Amounts{Cost: j.Cost, Tokens: j.Tokens},
	}
}
