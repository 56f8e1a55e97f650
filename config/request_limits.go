package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// RequestLimit is a limit on requests to the callers' listener, whatever they cost. It has exactly
// one shape: amount with window, or bucket. All processes count together in Redis; without Redis,
// each counts for itself. A request over the limit gets 429.
type RequestLimit struct {
	// Name is unique in the list. Requests are counted under it: a new amount keeps the count, a
	// new name starts at zero.
	Name string `yaml:"name,required" kind:"id"`
	// Subject is whose requests count together: those of each caller address (before the key is
	// checked), or of each key, user or org.
	Subject string `yaml:"subject,required" enum:"ip,key,user,org"`
	// Class restricts the limit to requests that cost no money and change nothing (read), that
	// cost no money and change something, such as uploads and cancellations (write), or that may
	// cost money, such as calls and new batches (spend). Default: all.
	Class string `yaml:"class" enum:"read,write,spend"`
	// Endpoints are patterns of paths with /v1, such as /v1/jobs or "/v1/files*". Default: all.
	Endpoints []string `yaml:"endpoints"`
	// Methods are HTTP methods. Default: all.
	Methods []string `yaml:"methods"`
	// Mode is what the limit does. enforce: it refuses requests. shadow: it only counts and
	// reports. off: neither.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	// Amount is a number of requests.
	Amount Quantity `yaml:"amount"`
	// Window makes the limit a sliding window: at most Amount in any period of this length.
	Window time.Duration `yaml:"window"`
	// Bucket makes the limit a token bucket.
	Bucket Bucket `yaml:"bucket"`
}

// Limit returns the limit with the fields that all limits have.
func (l RequestLimit) Limit() Limit {
	return Limit{
		Name: l.Name, Subject: l.Subject, Metric: "requests", Mode: l.Mode, Amount: l.Amount, Window: l.Window,
		Bucket: l.Bucket,
	}
}

// servedPaths returns the paths below which the callers' listener serves requests.
func servedPaths() []string {
	var out []string
	for path := range wire.ServedMethods() {
		root, _, _ := strings.Cut(path, "/*")
		root = "/v1" + strings.TrimSuffix(root, "/")
		if path != "/" && !slices.Contains(out, root) {
			out = append(out, root)
		}
	}
	slices.Sort(out)
	return out
}

// servedMethods are the methods of requests that the callers' listener serves.
var servedMethods = []string{"GET", "HEAD", "POST", "DELETE"}

func checkRequestLimits(m *mistakes, list []RequestLimit) {
	checkCapCount(m, "request_limits", len(list))
	ids := names{}
	for i, l := range list {
		path := element("request_limits", i)
		m.unique(ids, path+".name", l.Name)
		if !m.given(path+".window") && !m.given(path+".bucket") {
			m.failAt(path, "has no shape; add amount: 100 and window: 1m, or bucket")
		} else if checkShape(m, path, l.Limit()) {
			checkQuantities(m, path, l.Limit())
		}
		m.patterns(path+".endpoints", l.Endpoints)
		m.patterns(path+".methods", l.Methods)
		for j, p := range l.Endpoints {
			checkPath(m, fmt.Sprintf("%s.endpoints[%d]", path, j), p)
		}
		for j, method := range l.Methods {
			if !slices.Contains(servedMethods, method) {
				m.failAt(fmt.Sprintf("%s.methods[%d]", path, j), "there is no method %q%s; the methods are %s", method,
					didYouMean(strings.ToUpper(method), servedMethods), strings.Join(servedMethods, ", "))
			}
		}
	}
}

// checkPath checks that a pattern of paths can match a request that is served.
func checkPath(m *mistakes, path, pattern string) {
	fixed, _, open := strings.Cut(pattern, "*")
	paths := servedPaths()
	served := slices.ContainsFunc(paths, func(p string) bool {
		return fixed == p || strings.HasPrefix(fixed, p+"/") || open && strings.HasPrefix(p, fixed)
	})
	switch {
	case served:
	case !strings.HasPrefix(fixed, "/"):
		m.failAt(path, "write the path with /v1, such as /v1/jobs, or /v1/jobs* with everything below; got %s",
			quote(pattern))
	default:
		m.failAt(path, "no path that is served matches %s%s", quote(pattern), didYouMean(fixed, paths))
	}
}
