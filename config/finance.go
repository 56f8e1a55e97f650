package config

import (
	"slices"
	"strings"
)

// Finance is for accountants: see docs/finance.md.
type Finance struct {
	Export FinanceExport `yaml:"export"`
}

// FinanceExport are FOCUS files of all orgs that the processes write regularly.
type FinanceExport struct {
	// Every is when files are written. day: soon after each midnight UTC, the files of the month so far. month: when
	// a month is over. Default: never.
	Every string `yaml:"every" enum:"day,month"`
	// To is a directory, the same for all processes, or a bucket, s3://bucket/prefix?region=... as in files.store.
	To     string `yaml:"to"`
	Format string `yaml:"format" default:"csv" enum:"csv"`
	// By splits the rows further: user, key, endpoint and label:NAME.
	By []string `yaml:"by"`
	// BillingAccount is the BillingAccountId. Default: the id of the provider.
	BillingAccount string `yaml:"billing_account"`
}

// checkFinance checks the exports for accountants.
func checkFinance(m *mistakes, cfg *Config) {
	const at = "finance.export"
	e := cfg.Finance.Export
	switch {
	case e.Every == "" && e.To != "":
		m.failAt(at, "every is missing: set it to day or month")
	case e.Every != "" && e.To == "":
		m.failAt(at, "to is missing: set it to a directory or s3://bucket/prefix?region=...")
	case strings.Contains(e.To, "://") && !strings.HasPrefix(e.To, "s3://"):
		m.failAt(at+".to", "expected a directory or s3://bucket/prefix?region=..., got %s", quote(e.To))
	}
	for _, by := range e.By {
		label, isLabel := strings.CutPrefix(by, "label:")
		switch {
		case isLabel && !slices.Contains(labelNames(cfg), label):
			m.failAt(at+".by", "there is no label %s; configure it in labels", quote(label))
		case !isLabel && !slices.Contains([]string{"user", "key", "endpoint"}, by):
			m.failAt(at+".by", "expected user, key, endpoint and label:NAME, got %s", quote(by))
		}
	}
}
