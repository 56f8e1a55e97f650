package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// finish sets values that depend on other fields.
func finish(m *mistakes, cfg *Config) {
	for i := range cfg.Providers {
		p := &cfg.Providers[i]
		p.BaseURL = strings.TrimRight(p.BaseURL, "/")
		if len(p.Pools) == 0 {
			pool := Pool{ID: p.ID}
			setDefaults(reflect.ValueOf(&pool).Elem())
			p.Pools = []Pool{pool}
		}
		for j := range p.Pools {
			path := fmt.Sprintf("providers[%d].pools[%d].models", i, j)
			if !m.given(path) {
				p.Pools[j].Models = []string{"*"}
			}
		}
	}
	finishPlans(m, "defaults", cfg.Defaults.Plans)
	for i := range cfg.Orgs {
		if cfg.Orgs[i].OnStoreFailure == "" {
			cfg.Orgs[i].OnStoreFailure = cfg.Store.OnFailure
		}
		finishGroups(m, element("orgs", i), cfg.Orgs[i].Groups)
		finishPlans(m, element("orgs", i), cfg.Orgs[i].Plans)
		for j := range cfg.Orgs[i].Users {
			u := &cfg.Orgs[i].Users[j]
			for k := range u.Limits {
				if path := fmt.Sprintf("orgs[%d].users[%d].limits[%d]", i, j, k); !m.given(path + ".subject") {
					u.Limits[k].Subject = "user"
				}
				if u.Limits[k].Only == "" {
					u.Limits[k].Only = u.ID
				}
			}
		}
	}
}

// validate checks everything that involves more than a single value.
func validate(m *mistakes, cfg *Config) {
	if cfg.Listen == cfg.Admin.Listen && !strings.HasSuffix(cfg.Listen, ":0") {
		path, other := "admin.listen", "listen"
		if !m.given(path) {
			path, other = other, path
		}
		m.failAt(path, "%s is also the address of %s; the admin listener needs its own", cfg.Listen, other)
	}
	checkRoom(m, cfg)
	checkAnswerStore(m, cfg)
	checkFinance(m, cfg)
	if bits := cfg.Connections.IPv6Prefix; bits > 128 {
		m.failAt("connections.ipv6_prefix", "an IPv6 address has 128 bits; %d is more", bits)
	}
	if lease := cfg.Store.HoldLease; lease < 3*time.Second {
		m.failAt("store.hold_lease",
			"%s is too short: set at least 3s, because holds are renewed three times per lease and Redis may be slow for a "+
				"second", lease)
	}
	if slices.Contains([]string{"wait1", "waitaof1"}, cfg.Store.Durability) && cfg.Redis.Mode == "cluster" {
		m.failAt("store.durability", "%s is not supported on a cluster; set min-replicas-to-write on its nodes instead",
			cfg.Store.Durability)
	}
	checkPrices(m, cfg)
	checkPublicURL(m, "public_url", cfg.PublicURL)
	checkPublicURL(m, "admin.public_url", cfg.Admin.PublicURL)
	checkOrigins(m, cfg.CORSOrigins)
	checkTLS(m, "tls", cfg.TLS)
	checkTLS(m, "admin.tls", cfg.Admin.TLS)
	m.longEnough("admin.metrics_token", cfg.Admin.MetricsToken)
	checkRedis(m, cfg.Redis)
	checkPeppers(m, cfg.Auth.Peppers)
	checkAdmins(m, cfg)
	checkProviders(m, cfg)
	checkPriced(m, cfg)
	checkSpendCaps(m, "spend_caps", cfg.SpendCaps)
	checkRequestLimits(m, cfg.RequestLimits)
	checkLabels(m, cfg)
	checkDefaults(m, cfg)
	checkBrakes(m, "brakes", cfg.Brakes, cfg)
	checkBrakeCount(m, "brakes", len(cfg.Brakes))
	checkOrgs(m, cfg)
	checkQueue(m, cfg.Queue)
	checkWebhookBounds(m, cfg.Webhooks)
	checkAlerts(m, "alerts", cfg.Alerts, cfg.Webhooks)
	checkTracing(m, cfg.Tracing)
	if share := cfg.Ledger.MemoryShare; share > 100 {
		m.failAt("ledger.memory_share", "is a percentage; %d is more than 100", share)
	}
}

// checkTLS checks that a certificate has its key.
func checkTLS(m *mistakes, path string, t TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		m.failAt(path, "cert_file and key_file go together; one is missing")
	}
}

// checkQueue checks the percentages.
func checkQueue(m *mistakes, q Queue) {
	for name, percent := range map[string]int{
		"org_share": q.OrgShare, "user_share": q.UserShare, "memory_share": q.MemoryShare,
		"memory_org_share": q.MemoryOrgShare,
	} {
		if percent > 100 {
			m.failAt("queue."+name, "is a percentage; %d is more than 100", percent)
		}
	}
	ids := names{}
	for i, k := range q.SealKeys {
		path := fmt.Sprintf("queue.seal_keys[%d]", i)
		m.unique(ids, path+".id", k.ID)
		m.longEnough(path+".secret", k.Secret)
	}
	if s := q.Shares; s.Interactive+s.Async+s.Batch > 100 {
		m.failAt("queue.shares", "add up to %d percent, more than 100", s.Interactive+s.Async+s.Batch)
	}
}

// checkHostPort accepts host:port with a numeric port; the host may be empty.
func checkHostPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	_, numErr := strconv.ParseUint(port, 10, 16)
	switch {
	case strings.ContainsAny(addr, "/ "):
		return fmt.Errorf("expected host:port without scheme or path, got %s", quote(addr))
	case err != nil && !strings.Contains(addr, ":"):
		if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
			return fmt.Errorf(`expected host:port, got %s; did you mean "127.0.0.1:%s"?`, quote(addr), addr)
		}
		return fmt.Errorf("expected host:port, got %s; the port is missing", quote(addr))
	case err != nil:
		return fmt.Errorf("expected host:port, got %s; an IPv6 address needs brackets: [::1]:8080", quote(addr))
	case numErr != nil:
		return fmt.Errorf("expected host:port, got %s; the port is a number from 0 to 65535", quote(addr))
	}
	return nil
}

// mostPrefix is the length of the longest redis.prefix.
const mostPrefix = 32

// checkRedisPrefix: braces would change the hash tags of a cluster, and *, ? and brackets the
// patterns by which keys are found.
func checkRedisPrefix(m *mistakes, prefix string) {
	wrong := strings.IndexFunc(prefix, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_-.:/", r)
	})
	switch {
	case wrong >= 0:
		m.failAt("redis.prefix", "cannot contain %q; use letters, digits and _ - . : /", []rune(prefix[wrong:])[0])
	case len(prefix) > mostPrefix:
		m.failAt("redis.prefix", "has %d characters; at most %d", len(prefix), mostPrefix)
	case strings.HasPrefix(prefix, "lg:"), strings.HasPrefix(prefix, "asynq:"):
		m.failAt("redis.prefix", "cannot begin with lg: or asynq:, as keys of deployments without a prefix do; choose "+
			"another, such as staging:")
	}
}

func checkRedis(m *mistakes, r Redis) {
	checkRedisPrefix(m, r.Prefix)
	if r.URL != "" {
		checkRedisURL(m, r)
		return
	}
	for i, addr := range r.Addresses {
		if m.broken(fmt.Sprintf("redis.addresses[%d]", i)) {
			continue
		}
		if strings.HasPrefix(addr, "/") && r.Mode == "single" {
			continue // a unix socket
		}
		if err := checkHostPort(addr); err != nil {
			m.failAt(fmt.Sprintf("redis.addresses[%d]", i), "%s", err)
		}
	}
	switch {
	case m.broken("redis"):
	case len(r.Addresses) == 0 && m.given("redis"):
		m.failAt("redis", "addresses is missing; name the server (addresses: [127.0.0.1:6379]) or remove the section")
	case r.Mode == "single" && len(r.Addresses) > 1:
		m.failAt("redis.addresses", "mode single has one address, got %d; set mode: cluster or mode: sentinel",
			len(r.Addresses))
	case r.Mode == "sentinel" && r.MasterName == "":
		m.failAt("redis.mode", "mode sentinel needs master_name, the name of the primary in the sentinels' configuration")
	case r.Mode != "sentinel" && r.MasterName != "":
		m.failAt("redis.master_name", "is for mode sentinel only; mode is %s", r.Mode)
	case r.Mode == "cluster" && r.DB != 0:
		m.failAt("redis.db", "a cluster has only database 0")
	}
	switch t := r.TLS; {
	case (t.CertFile == "") != (t.KeyFile == ""):
		m.failAt("redis.tls", "cert_file and key_file go together; one is missing")
	case !t.Enabled && t != (RedisTLS{}):
		m.failAt("redis.tls", "has no effect without enabled: true")
	}
}

func checkRedisURL(m *mistakes, r Redis) {
	for _, other := range []string{"addresses", "username", "password", "db", "tls", "master_name"} {
		if m.given("redis." + other) {
			m.failAt("redis."+other, "cannot be combined with redis.url, which already sets it; use either url or the "+
				"separate fields")
		}
	}
	if r.Mode != "single" {
		m.failAt("redis.mode", "mode %s needs addresses instead of url", r.Mode)
	}
	u, err := url.Parse(r.URL.Reveal())
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Host == "" && u.Path == "" {
		m.failAt("redis.url", "expected redis://user:password@host:6379/0, rediss://... or unix:///path")
	}
}

func checkPeppers(m *mistakes, peppers []Pepper) {
	ids := names{}
	for i, p := range peppers {
		path := fmt.Sprintf("auth.peppers[%d]", i)
		m.unique(ids, path+".id", p.ID)
		if p.ID == "sha256" {
			m.failAt(path+".id", `"sha256" marks hashes made without a pepper; choose another id`)
		}
		m.longEnough(path+".secret", p.Secret)
	}
}

// longEnough refuses secrets that are short enough to guess.
func (m *mistakes) longEnough(path string, s Secret) {
	if n := len(s); n > 0 && n < 16 {
		m.failAt(path, "has %d characters; at least 16 are needed (openssl rand -hex 32)", n)
	}
}

// names records where each name was first used.
type names map[string]string

// unique records an error if a name of its kind is used a second time.
func (m *mistakes) unique(seen names, path, name string) {
	if name == "" {
		return // reported as missing
	}
	if first, dup := seen[name]; dup {
		m.failAt(path, "%q is already used on line %d, by %s", name, m.markAt(first).line, first)
		return
	}
	seen[name] = path
}

// patterns checks a list of name patterns. An empty list is refused, because it could be read as
// "none" or as "all".
func (m *mistakes) patterns(path string, list []string) {
	if m.given(path) && len(list) == 0 {
		m.failAt(path, "is empty; remove it to allow all, or list what is allowed")
	}
	m.spelled(path, list)
}

// spelled refuses entries that are neither a name nor a pattern.
func (m *mistakes) spelled(path string, list []string) {
	for i, p := range list {
		if strings.ContainsAny(p, " \t?[]{}") {
			m.failAt(fmt.Sprintf("%s[%d]", path, i), "expected a name or a pattern with * in it, got %s", quote(p))
		}
	}
}

// refer records an error when name is not one of the known ones.
func (m *mistakes) refer(path, what, name string, known []string) {
	if !slices.Contains(known, name) {
		m.failAt(path, "there is no %s %q%s", what, name, didYouMean(name, known))
	}
}

var idForm = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

var notIDForm = regexp.MustCompile(`[^a-z0-9_-]+`)

// checkKind checks a text against the format in its field's kind tag.
func checkKind(kind, text string) error {
	switch kind {
	case "address":
		return checkHostPort(text)
	case "label":
		return settings.CheckLabelName(text)
	}
	if idForm.MatchString(text) {
		return nil
	}
	slug := strings.Trim(notIDForm.ReplaceAllString(strings.ToLower(text), "-"), "-")
	if idForm.MatchString(slug) {
		return fmt.Errorf("%s is not an id (1 to 64 of a-z, 0-9, _ and -); did you mean %q?", quote(text), slug)
	}
	return fmt.Errorf("%s is not an id (1 to 64 of a-z, 0-9, _ and -)", quote(text))
}

func wrongChoice(text string, enum []string) string {
	if len(enum) == 1 {
		return fmt.Sprintf("%s is not supported; the only choice is %s", quote(text), enum[0])
	}
	hint := ""
	if h := didYouMean(text, enum); strings.HasPrefix(h, "; did") {
		hint = h
	}
	return fmt.Sprintf("expected one of %s, got %s%s", strings.Join(enum, ", "), quote(text), hint)
}

// isAddress reports whether text is an IP address or a range.
func isAddress(text string) bool {
	_, errAddr := netip.ParseAddr(text)
	_, errRange := netip.ParsePrefix(text)
	return errAddr == nil || errRange == nil
}
