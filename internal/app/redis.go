package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// Connect opens the configured Redis without waiting for it to answer.
func Connect(c config.Redis) (redisconn.DB, error) {
	d, err := driverConfig(c)
	if err != nil {
		return nil, err
	}
	rdb, err := driver.Connect(d)
	if err != nil {
		return nil, errors.New("redis.url is not a Redis URL; expected redis://user:password@host:6379/0, rediss://... " +
			"or unix:///path")
	}
	return rdb, nil
}

func driverConfig(c config.Redis) (d driver.Config, err error) {
	d = driver.Config{
		Mode: driver.Mode(c.Mode), URL: c.URL.Reveal(), Addresses: c.Addresses, MasterName: c.MasterName,
		Username: c.Username, Password: c.Password.Reveal(), Database: c.DB, Prefix: c.Prefix,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword.Reveal(),
	}
	if c.TLS.Enabled {
		d.TLS, err = tlsConfig(c.TLS)
	}
	return d, err
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
			return nil, fmt.Errorf("redis.tls.ca_file: %s contains no certificate", c.CAFile)
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

// CheckRedis refuses a Redis that would lose money or jobs, and warns about one that might.
func CheckRedis(ctx context.Context, rdb redisconn.DB, log *slog.Logger) error {
	awaitRedis(ctx, rdb, log)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r := diagnose.Report{Area: "redis"}
	if s := diagnose.AskRedis(ctx, rdb, &r); s != nil {
		s.Settings(ctx, &r)
	}
	for _, f := range r.Findings {
		if f.Level == diagnose.Error {
			return fmt.Errorf("%s. %s", f.What, f.Fix)
		}
		log.Warn("redis configuration problem", "what", f.What, "fix", f.Fix)
	}
	return nil
}

// startPatience is how long startup waits for a slow Redis or machine.
const startPatience = 15 * time.Second

// awaitRedis waits while Redis accepts connections but is slow. It leaves refused
// connections and error replies to the check.
func awaitRedis(ctx context.Context, rdb redisconn.DB, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for ctx.Err() == nil {
		err := rdb.Ping(ctx).Err()
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			return
		}
		log.Warn("redis slow to answer, still waiting", "err", err)
	}
}
