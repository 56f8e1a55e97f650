package simulate

import (
	"fmt"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// subject is whom a call is made for, resolved under the policy.
type subject struct {
	why    string // why its calls are skipped, or ""
	org    *guard.Org
	limits []budget.Limit
	brakes []guard.Braking
	on     *budget.Bound
	pool   *poolState
	poolID string
	flow   queue.Flow
	lane   string
}

// whose returns the key under which subjects cache whom a call is made for.
func (e *engine) whose(call int32) who {
	w := e.trace.calls[call].who
	if !e.repeats {
		w.request = 0 // otherwise each request would be a subject of its own
	}
	return w
}

// subject resolves whom a call is made for, and caches the result.
func (e *engine) subject(call int32) (*subject, error) {
	w := e.whose(call)
	if s := e.subjects[w]; s != nil {
		return s, nil
	}
	s, err := e.resolve(w)
	if err == nil {
		e.subjects[w] = s
	}
	return s, err
}

func (e *engine) resolve(w who) (*subject, error) {
	name := func(id uint32) string { return e.trace.names[id] }
	org := e.policy.Guard.Orgs[name(w.org)]
	if org == nil {
		return &subject{why: fmt.Sprintf("org %s is not in %s", name(w.org), e.policy.Name)}, nil
	}
	caller := e.trace.caller(w, org)
	request := &wire.Request{Model: name(w.model), Endpoint: wire.Endpoint(name(w.endpoint))}
	target, limits, caps, err := e.policy.Guard.Standing(caller, request)
	if err != nil {
		return &subject{why: fmt.Sprintf("no pool of %s serves the model %s", e.policy.Name, name(w.model))}, nil
	}
	s := &subject{
		org: org, limits: limits, pool: e.pools[target.Pool], poolID: target.Pool,
		flow: queue.Flow{Org: org.ID, User: caller.User},
	}
	if s.pool == nil {
		return nil, fmt.Errorf("simulate: %s has no pool %q", e.policy.Name, target.Pool)
	}
	s.brakes = e.policy.Guard.Braking(caller, request, target, name(w.request))
	call := ledger.Call{
		Org: org.ID, User: caller.User, Key: caller.Key, IP: caller.IP, Labels: caller.Labels, Request: name(w.request),
		Run: caller.Run,
	}
	s.on, err = e.budget.BindAll(s.counters(), caps, call)
	if err != nil {
		return nil, err
	}
	names := [2]uint32{w.key, w.model}
	if e.lanes[names] == "" {
		e.lanes[names] = queue.Lane(caller.Key, name(w.model))
	}
	s.lane = e.lanes[names]
	return s, nil
}
