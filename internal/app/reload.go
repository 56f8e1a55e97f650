package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tenants"
)

// ErrNoFile means that a process has no configuration file to reload.
var ErrNoFile = errors.New("this process was started without a configuration file, so there is nothing to reload")

// Reloaded is the result of a reload of the configuration file.
type Reloaded = tenants.Reloaded

// Config returns the current configuration. It is read-only.
func (a *App) Config() *config.Config { return a.current.Load() }

// Reload reads the configuration file again and, if it is valid, applies it to calls and
// jobs that begin from now on; those in progress continue with the previous one. After an
// error nothing has changed. It is safe for concurrent use; concurrent reloads run one
// after the other.
func (a *App) Reload(ctx context.Context) (*Reloaded, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	r, err := a.reload()
	if err != nil {
		a.told.Refused()
		a.log.ErrorContext(ctx, "reload failed, still running the previous configuration", "err", err)
		return nil, err
	}
	a.log.InfoContext(ctx, "configuration reloaded", "hash", r.Hash, "changed", r.Changed)
	if len(r.NeedsRestart) > 0 {
		a.log.WarnContext(ctx, "some changed fields need a restart to take effect", "fields", r.NeedsRestart)
	}
	return r, nil
}

func (a *App) reload() (*Reloaded, error) {
	if a.load == nil {
		return nil, ErrNoFile
	}
	next, err := a.load()
	if err != nil {
		return nil, err
	}
	if err := a.reloadCertificates(); err != nil {
		return nil, err
	}
	r := a.Config().Reload(next)
	if err := a.apply(r.Config); err != nil {
		if len(r.NeedsRestart) > 0 {
			err = fmt.Errorf("%w; a restart may be needed, because these fields take effect only then: %s", err,
				strings.Join(r.NeedsRestart, ", "))
		}
		return nil, err
	}
	a.told.Taken(r.Config, len(r.NeedsRestart), time.Now())
	return &Reloaded{
		Hash: hex.EncodeToString(r.Config.Sum[:]), Changed: list(r.Changed),
		NeedsRestart: list(r.NeedsRestart),
	}, nil
}

// apply puts a configuration into effect. Steps that can fail come first, and pools before
// the policy that sends calls to them.
func (a *App) apply(c *config.Config) error {
	set, err := convert(c)
	if err != nil {
		return err
	}
	if err := durable(c); err != nil {
		return err
	}
	if err := a.webhooks.SetOrgs(set.webhooks.Orgs); err != nil {
		return err
	}
	if err := a.queue.Configure(set.pools, queueOptions(c, set)); err != nil {
		return errors.Join(err, a.webhooks.SetOrgs(a.hooks))
	}
	a.memory.Configure(memoryOptions(c))
	a.turns.Configure(conversations(c, set))
	a.answers.Seal(set.seal)
	if a.blobs != nil {
		a.blobs.Seal(set.seal)
	}
	a.hooks = set.webhooks.Orgs
	a.alerts.SetRules(alertRules(c))
	a.budget.SumLabels(SummedLabels(c))
	drop := set.policy.Providers.Adopt(a.guard.Policy().Providers)
	a.ids.setFile(c, set)
	if a.worker != nil {
		a.worker.SetConcurrency(set.workers)
	}
	if a.level != nil {
		_ = a.level.UnmarshalText([]byte(c.Log.Level)) // validated before
	}
	a.current.Store(c)
	drop()
	return nil
}

// durable refuses orgs whose calls continue without Redis if there is no journal on disk
// for them.
func durable(c *config.Config) error {
	for _, o := range c.Orgs {
		if o.OnStoreFailure != "deny" && c.Store.JournalDir == "" {
			return fmt.Errorf("org %s has on_store_failure %s, which needs store.journal_dir", o.ID, o.OnStoreFailure)
		}
	}
	return nil
}

// list never returns nil, so that the JSON is [].
func list(s []string) []string { return append([]string{}, s...) }

// reloadOnHangup reloads at every SIGHUP until ctx ends. Signals that arrive after hangups
// but before this call are not lost.
func (a *App) reloadOnHangup(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			a.reloadBySignal(ctx)
		}
	}
}

// reloadBySignal reloads, and records it in the audit like a reload over the network. A
// reload that the audit does not accept still takes effect; the log has it.
func (a *App) reloadBySignal(ctx context.Context) {
	entry := tenants.AuditEntry{Actor: "signal", Action: "config.reload", At: time.Now().UTC()}
	hash := hex.EncodeToString(a.Config().Sum[:])
	done, err := a.Reload(ctx) // it logs its own result
	if err != nil {
		entry.Action = "config.reload_refused"
	} else {
		entry.After, err = json.Marshal(done)
		if err != nil {
			a.log.ErrorContext(ctx, "reload not recorded in the audit", "err", err)
			return
		}
	}
	entry.Before = fmt.Appendf(nil, `{"hash":%q}`, hash)
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	if err := a.identity.Commit(ctx, entry); err != nil {
		a.log.ErrorContext(ctx, "reload not recorded in the audit", "err", err)
	}
}

// process returns the role, host and id of this process. Another container can have the same ones.
func (a *App) process() string {
	host, _ := os.Hostname() // "" if it is unknown
	if a.callers == nil {
		return fmt.Sprintf("worker %s:%d", host, os.Getpid())
	}
	return fmt.Sprintf("serve %s:%d", host, os.Getpid())
}

// auditTime bounds writing the audit entry of a reload by a signal.
const auditTime = 10 * time.Second

// hangups catches SIGHUP, which would otherwise end the process.
func hangups() (hup <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
