package queue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// Position estimates how many jobs run before a waiting one, and the time until its turn at
// the pool's quota (0 if the pool has no rate).
//
// Older jobs of its flow go first. Each turn of its flow costs one turn of every user of
// its org, and each turn of the org one of every org with waiting jobs: (own ahead + 1) x
// users x orgs - 1, at most all that wait in its class, plus all that wait in higher
// classes. The time is what the quota needs for that many requests and their mean tokens,
// and at least the remaining time of a park or block. A job that does not wait has position
// 0.
func (q *Queue) Position(ctx context.Context, j *Job) (ahead int, eta time.Duration, err error) {
	at, err := q.reader.position(ctx, j)
	return at.ahead, max(at.turn, at.parked), err
}

// position is the place of a job in its pool: turn is the time until the provider's quota
// reaches it, parked how long a limit that refused it still holds it back.
type position struct {
	ahead        int
	turn, parked time.Duration
	by           budget.Cause // what parked it; empty if nothing did
	gone         bool         // the job does not wait
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
	w, err := words("place", reply, 5)
	if err != nil {
		return position{}, err
	}
	jobs, _ := strconv.ParseInt(w[0], 10, 64)
	tokens, _ := strconv.ParseInt(w[1], 10, 64)
	at := position{ahead: int(jobs), turn: max(p.drainTime(jobs, tokens), micros(w[2])), parked: micros(w[3])}
	if w[4] != "-" {
		at.by = budget.ParseCause(w[4])
	}
	return at, nil
}

// Place is the position of a waiting job in the queue and relative to its limits.
type Place struct {
	Ahead int
	// ETA is the estimated time until the job may run: the later of its turn at the
	// provider's quota and the time at which its limits have room for its hold. It is
	// negative if time alone does not free that room.
	ETA time.Duration
	// Cause is what it waits for, the later of the two: a limit, a spend cap, a stop, the
	// provider or its quota. It is empty if the job does not wait.
	Cause budget.Cause
	Room  *guard.Room // nil if its limits are no longer known
}

// Rooms returns the state of the limits of a waiting call; Guard.Room implements it.
type Rooms func(context.Context, guard.Waiter) (*guard.Room, error)

// Place returns the place of a waiting job. For a job that does not wait only Room is set.
func (q *Queue) Place(ctx context.Context, rooms Rooms, j *Job) (Place, error) {
	room, err := rooms(ctx, j.waiter())
	if errors.Is(err, budget.ErrUnavailable) {
		return Place{}, err
	}
	if err != nil { // its org or model is no longer configured: its turn will show
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
	place := Place{
		Ahead: at.ahead, ETA: max(at.turn, at.parked), Cause: budget.NewCause(budget.CausePool, j.Pool), Room: room,
	}
	limit, wait := room.Wait()
	switch {
	case wait >= guard.Endless:
		place.ETA, place.Cause = -1, limit
	case limit != "" && max(wait, at.parked) >= at.turn:
		place.ETA, place.Cause = max(place.ETA, wait), limit
	case at.by != "" && at.parked >= at.turn: // it has room again, and one of its jobs finds out
		place.Cause = at.by
	}
	return place, nil
}

// waiter returns the job as its limits see it.
func (j *Job) waiter() guard.Waiter {
	return guard.Waiter{
		Org: j.Org, User: j.User, Key: j.Key, IP: j.IP, Labels: j.Labels, Model: j.Model, Endpoint: j.Endpoint,
		Want: budget.Amounts{Cost: j.Cost, Tokens: j.Tokens},
	}
}
