package guard

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// HeaderCache is, in a request, what its caller accepts of the response cache: max-age=SECONDS,
// no-cache or no-store. In an answer it is hit, miss or skipped.
const HeaderCache = "Llmguard-Cache"

// CacheWish is what a request says about the response cache.
type CacheWish struct {
	asks, fresh, never bool
	age                time.Duration // of max-age
}

// maxWishAge bounds max-age, so that it does not overflow.
const maxWishAge = 1 << 31

// ParseCacheWish parses HeaderCache for a request of an org. The error is a *wire.Error.
func ParseCacheWish(h http.Header, o *Org) (CacheWish, error) {
	var w CacheWish
	for _, field := range h[HeaderCache] {
		for item := range strings.SplitSeq(field, ",") {
			if err := w.add(strings.ToLower(strings.TrimSpace(item)), o.Cache); err != nil {
				return CacheWish{}, err
			}
		}
	}
	return w, nil
}

func (w *CacheWish) add(item string, rule settings.Cache) error {
	name, value, _ := strings.Cut(item, "=")
	seconds, err := strconv.ParseInt(value, 10, 64)
	switch {
	case item == "no-store":
		w.never = true
	case item == "no-cache":
		w.fresh = true
	case name == "max-age" && err == nil && seconds >= 0 && rule.MaxAge <= 0:
		return wire.BadRequest(HeaderCache, "cache_not_allowed",
			"The response cache is off for this organization, so %s: max-age is not allowed. Remove the header, or ask an "+
				"operator to set `cache` for the organization", HeaderCache)
	case name == "max-age" && err == nil && seconds >= 0:
		w.asks, w.age = true, time.Duration(min(seconds, maxWishAge))*time.Second
	default:
		return wire.BadRequest(HeaderCache, "invalid_cache", "%s does not allow %.40q. It allows %s, no-cache and no-store",
			HeaderCache, item, cacheAllows(rule))
	}
	return nil
}

// cacheAllows words what a request may ask for.
func cacheAllows(r settings.Cache) string {
	if r.MaxAge <= 0 {
		return "(for this organization only)"
	}
	return "max-age=SECONDS (at most " + strconv.FormatInt(int64(r.MaxAge/time.Second), 10) + " for this organization)"
}

// uses reports whether the request uses the cache.
func (w CacheWish) uses(r settings.Cache) bool {
	return r.MaxAge > 0 && !w.never && (r.Always || w.asks || w.fresh)
}

// oldest returns the greatest age of an answer that the request accepts; 0 accepts none.
func (w CacheWish) oldest(r settings.Cache) time.Duration {
	switch {
	case w.fresh:
		return 0
	case w.asks:
		return min(w.age, r.MaxAge)
	}
	return r.MaxAge
}
