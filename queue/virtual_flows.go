package queue

import (
	"math"
	"slices"
	"sort"
	"strings"
)

// virtualFlows is lua/flows.lua for the three classes of a pool.
type virtualFlows struct {
	weights map[string]int
	classes [Batch + 1]virtualClass
	parked  *order // subjects by wake-up time
	probes  map[string]bool
	shut    map[string][]string // users kept out by the park of an org's model
	high    map[string]int      // waiting interactive jobs of high priority, by org
}

// virtualClass holds the waiting jobs of one class.
type virtualClass struct {
	waiting int
	flows   map[Flow]*virtualFlow
	orgs    *order            // by virtual time
	users   map[string]*order // by org; each by virtual time
	turns   map[Flow]int      // as in lane_first of picks.lua
}

// virtualFlow holds the lanes of a flow, ordered by name.
type virtualFlow struct{ lanes []*virtualLane }

type virtualLane struct {
	name string
	jobs []*VirtualJob // by seq
}

func newVirtualFlows(weights map[string]int) *virtualFlows {
	f := &virtualFlows{
		weights: weights, parked: newOrder(), probes: map[string]bool{}, shut: map[string][]string{},
		high: map[string]int{},
	}
	for c := Interactive; c <= Batch; c++ {
		f.classes[c] = virtualClass{
			flows: map[Flow]*virtualFlow{}, orgs: newOrder(), users: map[string]*order{}, turns: map[Flow]int{},
		}
	}
	return f
}

func (f *virtualFlows) weight(who string) float64 {
	if w, ok := f.weights[who]; ok {
		return float64(w)
	}
	return 100
}

// subjects returns everything a job can be parked by, in the order of Scope with the pool
// last.
func subjects(org, user, lane string) [7]string {
	k, m := lane[:3], lane[3:6]
	flow := org + " " + user
	return [7]string{
		ParkFlow: "u " + flow, ParkOrg: "o " + org, ParkFlowModel: "U " + flow + " " + m, ParkOrgModel: "O " + org + " " + m,
		ParkKey: "K " + flow + " " + k, ParkKeyModel: "L " + flow + " " + k + " " + m, ParkPool: "p pool",
	}
}

func (f *virtualFlows) lanePark(flow Flow, lane string) bool {
	if len(f.parked.score) == 0 {
		return false
	}
	return slices.ContainsFunc(subjectsOf(flow, lane), f.parked.has)
}

func subjectsOf(flow Flow, lane string) []string {
	s := subjects(flow.Org, flow.User, lane)
	return s[:]
}

func (f *virtualFlows) orgEnter(c Class, org string) {
	orgs := f.classes[c].orgs
	if orgs.has(org) || f.parked.has("o "+org) {
		return
	}
	_, low, _ := orgs.first()
	orgs.set(org, low)
}

func (f *virtualFlows) enter(c Class, flow Flow) {
	if f.parked.has("u " + flow.Org + " " + flow.User) {
		return
	}
	class := &f.classes[c]
	users := class.users[flow.Org]
	if users == nil {
		users = newOrder()
		class.users[flow.Org] = users
	}
	if !users.has(flow.User) {
		_, low, _ := users.first()
		users.set(flow.User, low)
	}
	f.orgEnter(c, flow.Org)
}

func (f *virtualFlows) leave(c Class, flow Flow) {
	if users := f.classes[c].users[flow.Org]; users != nil {
		users.drop(flow.User)
		delete(f.classes[c].turns, flow)
	}
}

// put queues a job at its own place in its flow.
func (f *virtualFlows) put(j *VirtualJob) {
	class := &f.classes[j.Class]
	w := class.flows[j.Flow]
	if w == nil {
		w = &virtualFlow{}
		class.flows[j.Flow] = w
	}
	i := sort.Search(len(w.lanes), func(i int) bool { return w.lanes[i].name >= j.lane })
	if i == len(w.lanes) || w.lanes[i].name != j.lane {
		w.lanes = slices.Insert(w.lanes, i, &virtualLane{name: j.lane})
	}
	l := w.lanes[i]
	l.jobs = slices.Insert(l.jobs, l.index(j), j)
	j.waits = true
	class.waiting++
	f.countHigh(j, 1)
	f.enter(j.Class, j.Flow)
}

// take removes a waiting job. It returns false if the job does not wait.
func (f *virtualFlows) take(j *VirtualJob) bool {
	if !j.waits {
		return false
	}
	class := &f.classes[j.Class]
	w := class.flows[j.Flow]
	i := slices.IndexFunc(w.lanes, func(l *virtualLane) bool { return l.name == j.lane })
	l := w.lanes[i]
	at := l.index(j)
	if at == 0 {
		l.jobs = l.jobs[1:]
	} else {
		l.jobs = slices.Delete(l.jobs, at, at+1)
	}
	if len(l.jobs) == 0 {
		w.lanes = slices.Delete(w.lanes, i, i+1)
	}
	if len(w.lanes) == 0 {
		delete(class.flows, j.Flow)
	}
	j.waits = false
	class.waiting--
	f.countHigh(j, -1)
	return true
}

// next returns the class's next job without taking it, as a turn without a cost; nil if there is
// none.
func (f *virtualFlows) next(c Class, skipped map[Flow]bool) *turn {
	if f.parked.has("p pool") {
		return nil
	}
	class := &f.classes[c]
	if skipped != nil {
		return f.nextPast(c, skipped)
	}
	for range 10_000 {
		org, _, ok := class.orgs.first()
		if !ok {
			return nil
		}
		user, vt, ok := class.users[org].first()
		if !ok {
			class.orgs.drop(org)
			continue
		}
		flow := Flow{org, user}
		if j, mixed := f.head(c, flow); j != nil {
			return &turn{job: j, vt: vt, mixed: mixed}
		}
		f.leave(c, flow)
		f.shutOut(c, flow)
	}
	return nil
}

// nextPast is next without the skipped flows. Orgs whose flows are all skipped stay in the
// ring.
func (f *virtualFlows) nextPast(c Class, skipped map[Flow]bool) *turn {
	class := &f.classes[c]
	for _, org := range class.orgs.all() {
		users := class.users[org]
		if users == nil {
			continue
		}
		for _, user := range users.all() {
			flow := Flow{org, user}
			if skipped[flow] {
				continue
			}
			if j, mixed := f.head(c, flow); j != nil {
				return &turn{job: j, vt: users.score[user], mixed: mixed}
			}
			f.leave(c, flow)
			f.shutOut(c, flow)
		}
	}
	return nil
}

// shutOut records the flow's user under each parked model of its org that keeps one of its
// lanes out.
func (f *virtualFlows) shutOut(c Class, flow Flow) {
	w := f.classes[c].flows[flow]
	if w == nil {
		return
	}
	for _, l := range w.lanes {
		subject := subjects(flow.Org, flow.User, l.name)[ParkOrgModel]
		if !f.parked.has(subject) {
			continue
		}
		list := f.shut[subject]
		if i, found := slices.BinarySearch(list, flow.User); !found {
			f.shut[subject] = slices.Insert(list, i, flow.User)
		}
	}
}

// back returns a flow with waiting jobs to its rings.
func (f *virtualFlows) back(flow Flow) bool {
	found := false
	for c := Interactive; c <= Batch; c++ {
		if f.classes[c].flows[flow] != nil {
			f.enter(c, flow)
			found = true
		}
	}
	return found
}

// wakes readmits the flows that a subject kept out, at most `most` of an org's model. It
// returns whether there were any, and whether there may be more.
func (f *virtualFlows) wakes(subject string, most int) (found, more bool) {
	kind, rest, _ := strings.Cut(subject, " ")
	org, rest, _ := strings.Cut(rest, " ")
	user, _, _ := strings.Cut(rest, " ")
	switch kind {
	case "p":
		return f.classes[Interactive].waiting+f.classes[Async].waiting+f.classes[Batch].waiting > 0, false
	case "O":
		list := f.shut[subject]
		n := min(len(list), most)
		for _, user := range list[:n] {
			f.back(Flow{org, user})
		}
		f.shut[subject] = list[n:]
		if len(list) == n {
			delete(f.shut, subject)
		}
		return true, n == most
	case "o":
		for c := Interactive; c <= Batch; c++ {
			if users := f.classes[c].users[org]; users != nil && len(users.score) > 0 {
				f.orgEnter(c, org)
				found = true
			}
		}
		return found, false
	}
	return f.back(Flow{org, user}), false
}

// park takes a subject out of the rings until `till`; the longest park wins.
func (f *virtualFlows) park(subject string, till int64) {
	f.parked.set(subject, max(till, f.parked.score[subject]))
	kind, rest, _ := strings.Cut(subject, " ")
	org, user, _ := strings.Cut(rest, " ")
	for c := Interactive; c <= Batch; c++ {
		switch kind {
		case "o":
			f.classes[c].orgs.drop(org)
		case "u":
			f.leave(c, Flow{org, user})
		}
	}
}

// shorten wakes the subjects of a completed job that are parked only for a moment.
func (f *virtualFlows) shorten(now int64, j *VirtualJob) {
	for _, subject := range subjects(j.Flow.Org, j.Flow.User, j.lane) {
		if left := f.parked.score[subject] - now; left > 0 && left <= soonPark.Microseconds() {
			f.parked.set(subject, now)
		}
	}
}

// wake brings back the subjects that are due, each as a probe.
func (f *virtualFlows) wake(now int64) {
	var due []string
	for len(due) < 100 {
		subject, till, ok := f.parked.first()
		if !ok || till > now {
			break
		}
		f.parked.drop(subject)
		due = append(due, subject)
	}
	for _, subject := range due { // they wake one by one while the others still park
		f.parked.score[subject] = math.MinInt64
	}
	for _, subject := range due {
		f.parked.drop(subject)
		if found, _ := f.wakes(subject, 1); found {
			f.probes[subject] = true
		} else {
			delete(f.probes, subject)
		}
	}
}

// probe parks the probing subjects of a job that has just been picked. It reports whether
// there were any.
func (f *virtualFlows) probe(j *VirtualJob, till int64) bool {
	if len(f.probes) == 0 {
		return false
	}
	found := false
	for _, subject := range probeOrder(j) {
		if f.probes[subject] {
			f.park(subject, till)
			found = true
		}
	}
	return found
}

// probeOrder lists a job's subjects in the order of subjects_of.
func probeOrder(j *VirtualJob) [7]string {
	s := subjects(j.Flow.Org, j.Flow.User, j.lane)
	s[ParkFlow], s[ParkOrg] = s[ParkOrg], s[ParkFlow]
	s[ParkFlowModel], s[ParkOrgModel] = s[ParkOrgModel], s[ParkFlowModel]
	return s
}

// admitted ends the probing of a job's subjects. `but` is the one that is about to be
// parked again.
func (f *virtualFlows) admitted(now int64, j *VirtualJob, but string) {
	if len(f.probes) == 0 {
		return
	}
	for _, subject := range probeOrder(j) {
		if !f.probes[subject] {
			continue
		}
		delete(f.probes, subject)
		if !f.parked.has(subject) {
			continue
		}
		f.parked.drop(subject)
		if subject == but {
			continue
		}
		if _, more := f.wakes(subject, 200); more {
			f.parked.set(subject, now)
		}
	}
}
