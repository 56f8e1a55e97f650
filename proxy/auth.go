package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/wire"
)

// authenticator identifies callers.
type authenticator struct {
	opts      *Options
	metrics   *metrics
	directory atomic.Pointer[auth.Directory]
	failures  *auth.FailureLimiter
	runs      runKeys

	unreadable sync.Once     // an address that was not readable was logged
	vouched    *rate.Limiter // of keys of runs that are looked up although there were too many wrong ones
}

// vouchedRate is how many keys of runs a process looks up in a second, although there were too many wrong ones.
const vouchedRate = 200

// authenticate identifies the caller. All refusals of whole keys look the same. After too many wrong keys, from
// one address or in total, further wrong keys get 429; a right key is never locked out, and costs
// Redis nothing.
func (a *authenticator) authenticate(r *http.Request, ip netip.Addr) (auth.Principal, error) {
	now := time.Now()
	text, sent := bearer(r.Header)
	if sent {
		p, ok, err := a.find(r.Context(), text, ip, now)
		if err != nil {
			return p, err
		}
		if ok && p.Admits(ip) {
			if a.opts.Used != nil {
				a.opts.Used(p.Org.ID, p.Key, now)
			}
			return p, nil
		}
		a.metrics.authFailures.Inc()
	}
	if !a.failures.Attempt(r.Context(), ip, now) {
		e := wire.RateLimited("Too many requests with an incorrect API key", auth.FailureRetryAfter)
		e.Limit = &wire.LimitState{
			Name: "incorrect-keys", Unit: wire.UnitRequests, Amount: int64(a.failures.Burst()),
			Reset: now.Add(auth.FailureRetryAfter),
		}
		return auth.Principal{}, e
	}
	if !sent {
		return auth.Principal{}, wire.InvalidKey("Exactly one API key is required. Send it as `Authorization: Bearer lg_live_...`")
	}
	switch class, err := keys.Check(text); { // what is wrong with its form is no secret
	case err != nil:
		return auth.Principal{}, wrongKey(": " + err.Error())
	case class == keys.Admin:
		return auth.Principal{}, wrongKey(": this is an administrator's key, for the admin API only")
	}
	return auth.Principal{}, wrongKey("")
}

func wrongKey(why string) error {
	return wire.InvalidKey("Incorrect API key provided" + why + ". Operators create keys with `llmguard keys create`")
}

// find returns the owner of a key. The checksum catches typos first. A well-formed but unknown key
// may be newer than the directory, so it is looked up in the store, unless there were too many
// wrong ones.
func (a *authenticator) find(
	ctx context.Context, text string, ip netip.Addr, now time.Time,
) (auth.Principal, bool, error) {
	class, err := keys.Check(text)
	if err != nil || class == keys.Admin {
		return auth.Principal{}, false, nil
	}
	if class == keys.Run {
		return a.findRun(ctx, text, ip, now)
	}
	p, good, known := a.directory.Load().Find(text, now)
	if known || a.opts.Missed == nil || a.failures.Blocked(ip, now) || !a.opts.Missed(ctx) {
		return p, good, nil
	}
	p, good, _ = a.directory.Load().Find(text, now)
	return p, good, nil
}

// bearer returns the key in the only Authorization header, in Azure's api-key header or in Anthropic's x-api-key
// header. Two credentials are refused, because it would be a guess which one counts; only Anthropic's clients send
// the same one twice.
func bearer(h http.Header) (string, bool) {
	auth, azure, own := h["Authorization"], h["Api-Key"], h["X-Api-Key"]
	both := len(auth) == 1 && len(own) == 1 && len(azure) == 0
	if len(auth)+len(azure)+len(own) != 1 && !both {
		return "", false
	}
	if len(auth) == 0 {
		return append(azure, own...)[0], true
	}
	scheme, text, ok := strings.Cut(auth[0], " ")
	text = strings.TrimSpace(text)
	return text, ok && strings.EqualFold(scheme, "bearer") && (!both || own[0] == text)
}

// clientIP returns the address of the caller: the peer's, or behind trusted proxies the one that they
// report. The first text that is not an address is logged, because all callers behind it then share
// the address of a proxy.
func (a *authenticator) clientIP(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	ip, unreadable := listen.Forwarded(r.Header, peer.Addr().Unmap(), a.trusts)
	if unreadable != "" {
		a.unreadable.Do(func() {
			a.opts.Log.Warn("address from a trusted proxy unreadable, using the proxy's own",
				"proxy", ip, "reported", shorten(unreadable))
		})
	}
	return ip
}

func (a *authenticator) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(a.opts.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}
