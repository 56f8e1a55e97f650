package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/budget"
)

// snapshot is a pool as lua/snapshot.lua read it.
type snapshot struct {
	v                 *Virtual
	now, off          int64 // of the pool's clock, and how far that is ahead of Redis's, us
	took, share, left int64
	paused            bool
	claims            []VirtualGrant
	by                map[string]budget.Cause // what is parked -> what refused it
	jobs              map[string]*VirtualJob
	resID             string // the job that quota is reserved for
	model             string // the letters of the model that the provider has paused, until:
	till              int64
}

// parseSnapshot builds a Virtual of the pool from a reply.
func parseSnapshot(p *pool, o Options, reply string) (*snapshot, error) {
	s := &snapshot{v: p.virtual(o), by: map[string]budget.Cause{}, jobs: map[string]*VirtualJob{}}
	for line := range strings.SplitSeq(reply, "\n") {
		w := strings.Fields(line)
		n := make([]int64, len(w))
		for i, word := range w {
			if word[0] <= '9' { // an error would cost more than a number
				n[i], _ = strconv.ParseInt(word, 10, 64)
			}
		}
		if len(w) < 2 || len(w) < snapshotWords[w[0]] {
			return nil, fmt.Errorf("queue: snapshot replied %.80q", line)
		}
		switch w[0] {
		case "n":
			s.now, s.off, s.took, s.share, s.left = n[1], n[2], n[7], n[8], n[9]
			s.paused = n[10] == 1
			s.v.live, s.v.claims = int(n[3]), int(n[4])
			s.v.credit[Async], s.v.credit[Batch] = n[5], n[6]
		case "q", "m", "r":
			s.v.quota.load(w, n, s.v.opts.Burst)
		default:
			s.add(w, n)
		}
	}
	if s.now == 0 {
		return nil, fmt.Errorf("queue: snapshot replied %.80q", reply)
	}
	return s, nil
}

// snapshotWords is how many words each kind of line has at least.
var snapshotWords = map[string]int{
	"n": 11, "q": 7, "m": 10, "r": 4, "p": 4, "z": 3, "c": 3, "v": 9, "o": 4, "u": 6, "w": 8,
}

// add adds a line about jobs and whose turn it is.
func (s *snapshot) add(w []string, n []int64) {
	flows := s.v.flows
	switch w[0] {
	case "p":
		subject := strings.Join(w[3:], " ")
		flows.parked.set(subject, n[1])
		if w[2] != "-" {
			s.by[subject] = budget.ParseCause(w[2])
		}
	case "c":
		s.claims = append(s.claims, VirtualGrant{at: n[1], tokens: n[2]})
	case "b":
		flows.probes[strings.Join(w[1:], " ")] = true
	case "z":
		s.till, s.model = n[1], w[2]
	case "v":
		s.resID = w[1]
		s.v.quota.res = &virtualReserve{
			job: &VirtualJob{}, tokens: n[2], credit: n[3], over: n[4], mode: reserveMode(n[5]), from: n[6], used: n[7],
			seen: n[8],
		}
	case "o":
		flows.classes[n[1]].orgs.set(w[3], n[2])
	case "u":
		class := &flows.classes[n[1]]
		if class.users[w[3]] == nil {
			class.users[w[3]] = newOrder()
		}
		class.users[w[3]].set(w[5], n[4])
		class.turns[Flow{w[3], w[5]}] = int(n[2])
	case "w":
		j := &VirtualJob{
			Class: Class(n[1]), Flow: Flow{w[2], w[3]}, Tokens: n[7], Deadline: 1 << 62,
			Priority: lanePriority(w[4]), lane: w[4], seq: n[5],
		}
		s.jobs[w[6]] = j
		if s.model != "" && s.model == w[4][3:6] {
			subject := subjects(w[2], w[3], w[4])[ParkFlowModel] // as acquire does when the flow has its turn
			flows.parked.set(subject, max(s.till, flows.parked.score[subject]))
			s.by[subject] = budget.NewCause(budget.CausePool, s.v.pool.ID)
		}
		flows.load(j)
		if res := s.v.quota.res; res != nil && s.resID == w[6] {
			res.job = j
		}
	}
}

// load queues a job whose user and org are in their rings, or else are not to be.
func (f *virtualFlows) load(j *VirtualJob) {
	class := &f.classes[j.Class]
	users := class.users[j.Flow.Org]
	user, org := users != nil && users.has(j.Flow.User), class.orgs.has(j.Flow.Org)
	f.put(j)
	if !user {
		f.leave(j.Class, j.Flow)
		f.shutOut(j.Class, j.Flow)
	}
	if !org {
		class.orgs.drop(j.Flow.Org)
	}
}

// load takes the quota over, from lines of the snapshot: the words, and the same as numbers.
func (q *virtualQuota) load(w []string, n []int64, burst int) {
	switch w[0] {
	case "q":
		q.known, q.last, q.slot, q.blocked, q.till, q.share, q.head = true, n[1], n[2], n[3], n[4], n[5], n[6]
	case "m":
		m := q.metric(w[1] == "t", n[2], burst)
		m.sum, m.draw, m.aside, m.live = n[3], n[5], float64(n[6]), n[7]
		if w[4] != "-" {
			m.level = min(n[4], m.cap)
		}
		m.ring[q.slot%quotaSlots] += n[8]
		m.draws[q.slot%quotaSlots] += n[9]
	case "r":
		m := q.metric(w[1][0] == 't', 0, burst)
		if len(w[1]) > 1 {
			m.draws[n[2]%quotaSlots] += n[3]
		} else {
			m.ring[n[2]%quotaSlots] += n[3]
		}
	}
}
