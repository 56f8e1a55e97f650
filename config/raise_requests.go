package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// maxRaiseFor bounds how long a request for more of a limit may be for.
const maxRaiseFor = 30 * 24 * time.Hour

// checkRaiseRequests checks the requests for more of a limit, in an org or in the defaults.
func checkRaiseRequests(m *mistakes, path string, r RaiseRequests) {
	switch {
	case r.MaxAmount != (Quantity{}) && !r.MaxAmount.Money:
		m.failAt(path+".max_amount", "expected an amount of money such as $50; only limits that count cost can be raised "+
			"on request")
	case r.MaxAmount.N > MaxQuantity/2:
		m.failAt(path+".max_amount", "is too large")
	}
	if r.MaxFor > maxRaiseFor {
		m.failAt(path+".max_for", "%s is too long; at most 30d", r.MaxFor)
	}
}

// checkPublicURL checks where a listener is reached.
func checkPublicURL(m *mistakes, path, text string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		m.failAt(path, "expected a URL such as https://llm.example.com, without user and query, got %s", quote(text))
	}
}

// checkOrigins checks that browsers can send these origins.
func checkOrigins(m *mistakes, origins []string) {
	for i, text := range origins {
		u, err := url.Parse(text)
		if text != "*" && (err != nil || u.Host == "" || text != u.Scheme+"://"+strings.ToLower(u.Host)) {
			m.failAt(fmt.Sprintf("cors_origins[%d]", i),
				"expected \"*\" or an origin such as https://app.example.com, in lower case and without a path, got %s",
				quote(text))
		}
	}
}
