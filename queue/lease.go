package queue

import (
	"context"
	"strconv"
)

// renewMost is how many claims a command renews.
const renewMost = 500

// renew extends the leases of claims, given as pairs of id and token, and returns one
// letter of lease.lua for each.
func (s *scripts) renew(ctx context.Context, p *pool, pairs []any) (string, error) {
	keys := []string{p.keys[1], p.keys[2], p.keys[3], p.keys[10], p.keys[6]}
	var letters string
	for len(pairs) > 0 {
		n := min(len(pairs), 2*renewMost)
		args := append([]any{s.opts.Lease.Microseconds()}, pairs[:n]...)
		part, err := s.eval(ctx, "lease", leaseScript, keys, args...)
		if err != nil {
			return letters, err
		}
		letters += part
		pairs = pairs[n:]
	}
	return letters, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
