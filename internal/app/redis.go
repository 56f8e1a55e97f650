package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// Connect opens the configured Redis. It does not wait for it to answer.
func Connect(c config.Redis) (redis.UniversalClient, error) {
	o, err := redisOptions(c)
	if err != nil {
		return nil, err
	}
	return redisconn.Open(redisconn.Mode(c.Mode), o), nil
}

func redisOptions(c config.Redis) (*redis.UniversalOptions, error) {
	if c.URL != "" {
		u, err := redis.ParseURL(c.URL.Reveal())
		if err != nil {
			return nil, errors.New("redis.url is not a Redis URL; expected redis://user:password@host:6379/0, rediss://... or unix:///path")
		}
		o := redisconn.Options(u.Addr)
		o.Username, o.Password, o.DB, o.TLSConfig = u.Username, u.Password, u.DB, u.TLSConfig
		return o, nil
	}
	o := redisconn.Options(c.Addresses...)
	o.MasterName = c.MasterName
	o.Username, o.Password, o.DB = c.Username, c.Password.Reveal(), c.DB
	o.SentinelUsername, o.SentinelPassword = c.SentinelUsername, c.SentinelPassword.Reveal()
	if c.TLS.Enabled {
		var err error
		if o.TLSConfig, err = tlsConfig(c.TLS); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func tlsConfig(c config.RedisTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis.tls.ca_file: %s holds no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.cert_file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// CheckRedis refuses a Redis that would lose money or jobs, and warns of one
// that might. Servers that do not tell (some managed ones) are taken at their
// word, with a warning.
func CheckRedis(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := rdb.Info(ctx).Result() // several sections at once are new in 7.0
	if err != nil {
		return fmt.Errorf("redis does not answer: %w", err)
	}
	facts := parseInfo(info)
	if v := facts["redis_version"]; v != "" && older(v, 6, 2) {
		return fmt.Errorf("redis %s is too old: 6.2 or newer is needed", v)
	}
	policy := facts["maxmemory_policy"]
	switch policy {
	case "noeviction":
	case "":
		log.Warn("redis does not tell its eviction policy; make sure that it is noeviction")
	default: // volatile-* too: all our keys have a lifetime
		return fmt.Errorf("redis evicts keys (maxmemory-policy %s): it would forget spending and lose jobs without a word. Set maxmemory-policy noeviction", policy)
	}
	if facts["arch_bits"] == "32" {
		log.Warn("redis is a 32-bit build: its memory ends at 3 GB, and it then refuses calls; use a 64-bit one")
	}
	warnSkew(ctx, rdb, log)
	if facts["aof_enabled"] == "0" {
		log.Warn("redis keeps no append-only file: a restart forgets spending and loses jobs; set appendonly yes")
	}
	return nil
}

// mostSkew is how far this machine's clock may be from Redis's before the
// operator is told.
const mostSkew = time.Second

// warnSkew compares the clocks. Limits go by Redis's; prices, expiries of keys
// and deadlines by this machine's.
func warnSkew(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger) {
	asked := time.Now()
	there, err := rdb.Time(ctx).Result()
	if err != nil {
		return
	}
	here := time.Now()
	if skew := skewOf(asked, here, there); skew.Abs() > mostSkew {
		log.Warn("the clocks of this machine and of redis differ: run a time service on both", "redis_is_ahead_by", skew)
	}
}

// skewOf is how far a clock that was read between two moments is ahead, at
// least.
func skewOf(asked, answered, there time.Time) time.Duration {
	switch {
	case there.Before(asked):
		return there.Sub(asked)
	case there.After(answered):
		return there.Sub(answered)
	default:
		return 0
	}
}

func parseInfo(text string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}

// older reports whether a version "7.0.15" is below major.minor.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || (a == major && b < minor)
}
