package guard

import (
	"context"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/providers"
)

// RequestClass says what a request does.
type RequestClass string

// Classes of requests.
const (
	Reads  RequestClass = "read"  // costs no money and changes nothing
	Writes RequestClass = "write" // costs no money and changes something
	Spends RequestClass = "spend" // may cost money
)

// RequestLimit is a limit on requests, whatever they cost. It counts in metric Requests, in a
// window or a bucket. Its Endpoints are patterns of paths.
type RequestLimit struct {
	budget.Limit
	Class   RequestClass // "": all
	Methods []string     // empty: all
}

// Arrival is what limits on requests know of a request.
type Arrival struct {
	Class  RequestClass
	Method string
	Path   string // with /v1
	// Counted means that the request was counted under another class, so only limits of this Class count it.
	Counted bool
}

// requestLimits returns the limits that count a request, either those of addresses or all others.
func (p *Policy) requestLimits(a Arrival, addresses bool) []budget.Limit {
	var out []budget.Limit
	for i := range p.RequestLimits {
		l := &p.RequestLimits[i]
		if (l.Subject == budget.IP) == addresses && (l.Class == "" && !a.Counted || l.Class == a.Class) &&
			(len(l.Methods) == 0 || slices.Contains(l.Methods, a.Method)) && providers.MatchAny(l.Endpoints, a.Path) {
			out = append(out, l.Limit)
		}
	}
	return out
}

func (p *Policy) addressSpan() time.Duration {
	var longest time.Duration
	for i := range p.RequestLimits {
		if l := &p.RequestLimits[i]; l.Subject == budget.IP {
			longest = max(longest, l.Shape.Span())
		}
	}
	return longest
}

// Requests applies the limits on requests. It is safe for concurrent use.
type Requests struct {
	policy func() *Policy
	budget *budget.Store
	counts addressCounts
}

// FromAddress counts a request in the limits per address and returns their state. The error is a
// *Refusal if one of them is used up. It is called before the caller is known.
func (r *Requests) FromAddress(ctx context.Context, a Arrival, ip netip.Addr) ([]budget.Status, error) {
	policy := r.policy()
	limits := policy.requestLimits(a, true)
	if len(limits) == 0 {
		return nil, nil
	}
	from := r.counts.place(limits[0].Network(ip.String()), policy.addressSpan(), time.Now())
	return r.counted(ctx, limits, ledger.Call{Org: "ip:" + from, IP: from})
}

// FromCaller counts a request in the limits per key, user and org; otherwise it is FromAddress.
func (r *Requests) FromCaller(ctx context.Context, a Arrival, c Caller) ([]budget.Status, error) {
	limits := r.policy().requestLimits(a, false)
	if len(limits) == 0 {
		return nil, nil
	}
	return r.counted(ctx, limits, ledger.Call{Org: c.Org.ID, User: c.User, Key: c.Key})
}

func (r *Requests) counted(ctx context.Context, limits []budget.Limit, c ledger.Call) ([]budget.Status, error) {
	out, err := r.budget.Requests.Count(ctx, limits, c)
	if err != nil {
		return nil, err
	}
	if e := out.Exceeded(); e != nil {
		return out.Statuses, &Refusal{ExceededError: e, ofRequests: true}
	}
	return out.Statuses, nil
}

const (
	// mostAddresses is how many addresses have a count of their own at a time, in one process.
	mostAddresses = 100_000
	// sharedPlaces is the number of counts that all other addresses share.
	sharedPlaces = 4096
)

// addressCounts bounds how many addresses are counted, so that a botnet or the owner of a large IPv6
// network cannot fill Redis. The first addresses have a count of their own, all others share a fixed
// number of counts. It remembers the addresses of the current and the previous generation. The zero
// value is usable.
type addressCounts struct {
	mu       sync.Mutex
	began    time.Time
	now, old map[string]struct{}
	most     int // 0: mostAddresses
}

// place returns what an address is counted as. keep is how long a count lasts.
func (c *addressCounts) place(address string, keep time.Duration, at time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.Sub(c.began) >= keep {
		c.old, c.now, c.began = c.now, map[string]struct{}{}, at
	}
	most := c.most
	if most == 0 {
		most = mostAddresses
	}
	_, known := c.now[address]
	_, earlier := c.old[address]
	if !known && len(c.now) >= most || !known && !earlier && len(c.now)+len(c.old) >= most {
		h := fnv.New32a()
		_, _ = h.Write([]byte(address))
		return "shared-" + strconv.Itoa(int(h.Sum32()%sharedPlaces))
	}
	c.now[address] = struct{}{}
	return address
}
