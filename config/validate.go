package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
			path := element(element("providers", i)+".pools", j) + ".models"
			if !m.given(path) {
				p.Pools[j].Models = []string{"*"}
			}
		}
	}
	finishLabels(m, cfg)
	finishLimits(m, limitLists("defaults", defaultsOrg(cfg)))
	for i := range cfg.Orgs {
		if cfg.Orgs[i].OnStoreFailure == "" {
			cfg.Orgs[i].OnStoreFailure = cfg.Store.OnFailure
		}
		finishLimits(m, limitLists(element("orgs", i), &cfg.Orgs[i]))
	}
}

// validate checks everything that involves more than a single value.
func validate(m *mistakes, cfg *Config) {
	m.obey("", reflect.ValueOf(cfg).Elem())
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
	if slices.Contains([]string{"wait1", "waitaof1"}, cfg.Store.Durability) && cfg.Redis.Mode == "cluster" {
		m.failAt("store.durability", "%s is not supported on a cluster; set min-replicas-to-write on its nodes instead",
			cfg.Store.Durability)
	}
	checkPrices(m, cfg)
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
	checkAlerts(m, "alerts", cfg.Alerts, cfg.Webhooks)
	checkTracing(m, cfg.Tracing)
}

// checkQueue checks the shares together.
func checkQueue(m *mistakes, q Queue) {
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

func checkRedis(m *mistakes, r Redis) {
	if r.URL != "" {
		checkRedisURL(m, r)
		return
	}
	for i, addr := range r.Addresses {
		if m.broken(element("redis.addresses", i)) {
			continue
		}
		if strings.HasPrefix(addr, "/") && r.Mode == "single" {
			continue // a unix socket
		}
		if strings.Contains(addr, "://") {
			m.failAt(element("redis.addresses", i), "expected host:port; write a URL as redis.url")
		} else if err := checkHostPort(addr); err != nil {
			m.failAt(element("redis.addresses", i), "%s", err)
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
	case r.Mode == "cluster" && r.DB != 0:
		m.failAt("redis.db", "a cluster has only database 0")
	}
}

func checkRedisURL(m *mistakes, r Redis) {
	if r.Mode != "single" {
		m.failAt("redis.mode", "mode %s needs addresses instead of url", r.Mode)
	}
	u, err := url.Parse(r.URL.Reveal())
	bad := err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Host == "" && u.Path == ""
	if bad || u.Scheme != "unix" && strings.Contains(u.Path+u.Fragment, "@") { // a part of the password
		m.failAt("redis.url", "expected redis://user:password@host:6379/0, rediss://... or unix:///path%s",
			passwordHint(r))
	} else if db := strings.Trim(u.Path, "/"); u.Scheme != "unix" && strings.Trim(db, "0123456789") != "" {
		m.failAt("redis.url", "the database after the host is a number, got %s; for a name, set redis.prefix%s",
			quote(db), passwordHint(r))
	}
}

// passwordHint explains how characters are written in the password of a URL.
func passwordHint(r Redis) string {
	if !strings.Contains(r.URL.Reveal(), "@") {
		return ""
	}
	return ". In a password write @ as %40, / as %2F, # as %23 and % as %25, or use addresses and password " +
		"instead of url"
}

func checkPeppers(m *mistakes, peppers []Pepper) {
	for i, p := range peppers {
		if p.ID == "sha256" {
			m.failAt(element("auth.peppers", i)+".id", `"sha256" marks hashes made without a pepper; choose another id`)
		}
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

// refer records an error when name is not one of the known ones.
func (m *mistakes) refer(path, what, name string, known []string) {
	if hint := settings.Hint(name, known); !slices.Contains(known, name) && !m.broken(path) {
		m.failAt(path, "there is no %s %q%s", what, name, cmp.Or(hint, "; none is defined, add it under "+what+"s"))
	}
}

func wrongChoice(text string, enum []string) string {
	if len(enum) == 1 {
		return fmt.Sprintf("%s is not supported; the only choice is %s", quote(text), enum[0])
	}
	hint := settings.DidYouMean(text, enum)
	return fmt.Sprintf("expected one of %s, got %s%s", strings.Join(enum, ", "), quote(text), hint)
}

// isAddress reports whether text is an IP address or a range.
func isAddress(text string) bool {
	_, errAddr := netip.ParseAddr(text)
	_, errRange := netip.ParsePrefix(text)
	return errAddr == nil || errRange == nil
}
