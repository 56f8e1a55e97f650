package config

import (
	"time"
)

// SpendCap is a limit on what all orgs together spend. It has exactly one shape: amount with
// window, amount with calendar, or bucket. Errors to callers do not show its amounts.
type SpendCap struct {
	// Name is unique in its list. Usage is stored under it: a new amount keeps the usage, a new
	// name starts at zero.
	Name string `yaml:"name,required" kind:"id" unique:"list"`
	// Models and Endpoints are patterns; only matching calls count. Endpoints are named as in
	// limits. Default: all.
	Models    []string `yaml:"models" range:"1.." kind:"pattern"`
	Endpoints []string `yaml:"endpoints" range:"1.." kind:"endpoint"`
	// Metric is what the cap counts.
	Metric string `yaml:"metric" default:"cost" enum:"cost,tokens,requests"`
	// Mode is what the cap does. enforce: it refuses or queues calls. shadow: it only counts
	// and reports. off: neither.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	// Amount is money for cost ("$5000"), a count for the others.
	Amount Quantity `yaml:"amount"`
	// Window makes the cap a sliding window: at most Amount in any period of this length.
	Window time.Duration `yaml:"window" range:"1s..366d"`
	// Exact makes the window exact to the microsecond instead of a sixtieth of it, for windows
	// up to an hour. It stores one entry for each call.
	Exact bool `yaml:"exact" needs:"window" excludes:"fixed"`
	// Fixed makes the window fixed instead of sliding, as for limits.
	Fixed bool `yaml:"fixed" needs:"window"`
	// Calendar makes the cap a fixed period, as for limits.
	Calendar string `yaml:"calendar" enum:"minute,hour,day,week,month,quarter,year"`
	// Starts moves the start of calendar periods, as for limits.
	Starts string `yaml:"starts"`
	// TZ is a time zone such as Europe/Berlin.
	TZ string `yaml:"tz" needs:"calendar" kind:"zone"`
	// Bucket makes the cap a token bucket.
	Bucket Bucket `yaml:"bucket"`
}

// Limit returns the cap as a limit that counts all callers together.
func (c SpendCap) Limit() Limit {
	return Limit{
		Name: c.Name, Subject: "org", Models: c.Models, Endpoints: c.Endpoints, Metric: c.Metric, Mode: c.Mode,
		Amount: c.Amount, Window: c.Window, Exact: c.Exact, Fixed: c.Fixed,
		Calendar: c.Calendar, Starts: c.Starts, TZ: c.TZ, Bucket: c.Bucket,
	}
}

func checkSpendCaps(m *mistakes, path string, list []SpendCap) {
	for i, c := range list {
		checkLimit(m, element(path, i), c.Limit())
	}
}
