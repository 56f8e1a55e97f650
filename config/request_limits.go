package config

import (
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// RequestLimit is a limit on requests to the callers' listener: amount with window, or bucket. All processes count
// together in Redis. A request over the limit gets 429.
type RequestLimit struct {
	// Name is unique in the list. A new amount keeps the count, a new name starts at zero.
	Name string `yaml:"name,required" kind:"id" unique:"list"`
	// Subject is whose requests count together: each caller address (before the key is checked), key, user or org.
	Subject string `yaml:"subject,required" enum:"ip,key,user,org"`
	// Class restricts the limit to free requests that change nothing (read), free requests that change something,
	// such as uploads (write), or requests that may cost money (spend). Default: all.
	Class string `yaml:"class" enum:"read,write,spend"`
	// Endpoints are patterns of paths with /v1, such as /v1/jobs or "/v1/files*". Default: all.
	Endpoints []string `yaml:"endpoints" range:"1.." kind:"path"`
	// Methods are HTTP methods. Default: all.
	Methods []string `yaml:"methods" range:"1.." kind:"method"`
	// Mode is as for limits.
	Mode   string   `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	Amount Quantity `yaml:"amount"`
	// Window and Bucket are as for limits.
	Window time.Duration `yaml:"window" range:"1s..366d"`
	Bucket Bucket        `yaml:"bucket"`
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
	for i, l := range list {
		path := element("request_limits", i)
		if !m.given(path+".window") && !m.given(path+".bucket") {
			m.failAt(path, "has no shape; add amount: 100 and window: 1m, or bucket")
		} else if checkShape(m, path, l.Limit()) {
			checkQuantities(m, path, l.Limit())
		}
	}
}
