package config

import (
	"fmt"
	"time"
)

// SpendCap bounds what all orgs together spend, in exactly one shape: amount with
// window, amount with calendar, or bucket. Callers that a cap refuses are told
// that it is reached, and nothing of its amounts.
type SpendCap struct {
	// Name is unique in its list. Usage is kept under it: changing the amount
	// keeps the usage, changing the name starts anew.
	Name string `yaml:"name,required" kind:"id"`
	// Models and Endpoints are patterns; only matching calls are counted. The
	// endpoints are those that limits have. Left out: all.
	Models    []string `yaml:"models"`
	Endpoints []string `yaml:"endpoints"`
	// Metric is what is counted.
	Metric string `yaml:"metric" default:"cost" enum:"cost,tokens,requests"`
	// Mode: enforce refuses or queues, shadow only counts and reports, off
	// does neither.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	// Amount is money for cost ("$5000"), a count for the others.
	Amount Quantity `yaml:"amount"`
	// Window makes it a sliding window: at most Amount in any such span.
	Window time.Duration `yaml:"window"`
	// Exact keeps the window to the microsecond instead of a sixtieth of it;
	// for windows up to an hour. It keeps an entry per call of everybody.
	Exact bool `yaml:"exact"`
	// Calendar makes it a fixed period, as of a limit.
	Calendar string `yaml:"calendar" enum:"minute,hour,day,week,month"`
	// TZ is a zone name such as Europe/Berlin.
	TZ string `yaml:"tz"`
	// Bucket makes it a token bucket.
	Bucket Bucket `yaml:"bucket"`
}

// Limit is the cap as a limit whose subject is everybody.
func (c SpendCap) Limit() Limit {
	return Limit{
		Name: c.Name, Subject: "org", Models: c.Models, Endpoints: c.Endpoints, Metric: c.Metric, Mode: c.Mode,
		Amount: c.Amount, Window: c.Window, Exact: c.Exact, Calendar: c.Calendar, TZ: c.TZ, Bucket: c.Bucket,
	}
}

func checkSpendCaps(m *mistakes, path string, list []SpendCap) {
	checkCapCount(m, path, len(list))
	ids := names{}
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		m.unique(ids, at+".name", c.Name)
		checkLimit(m, at, c.Limit())
	}
}
