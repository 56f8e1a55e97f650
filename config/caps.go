package config

import (
	"time"
)

// SpendCap is a limit on what all orgs together spend, in any shape of limits. Errors to callers do not show its
// amounts.
type SpendCap struct {
	// Name is unique in its list. A new amount keeps the usage, a new name starts at zero.
	Name string `yaml:"name,required" kind:"id" unique:"list"`
	// Models and Endpoints are patterns, as for limits.
	Models    []string `yaml:"models" range:"1.." kind:"pattern"`
	Endpoints []string `yaml:"endpoints" range:"1.." kind:"endpoint"`
	Metric    string   `yaml:"metric" default:"cost" enum:"cost,tokens,requests"`
	// Mode is as for limits.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	// Amount, Window, Exact, Fixed, Calendar, Starts, TZ and Bucket are as for limits; Exact stores one entry for
	// each call.
	Amount   Quantity      `yaml:"amount"`
	Window   time.Duration `yaml:"window" range:"1s..366d"`
	Exact    bool          `yaml:"exact" needs:"window" excludes:"fixed"`
	Fixed    bool          `yaml:"fixed" needs:"window"`
	Calendar string        `yaml:"calendar" enum:"minute,hour,day,week,month,quarter,year"`
	Starts   string        `yaml:"starts"`
	TZ       string        `yaml:"tz" needs:"calendar" kind:"zone"`
	Bucket   Bucket        `yaml:"bucket"`
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
