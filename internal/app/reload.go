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

// ErrNoFile says that a process has no configuration file to read again.
var ErrNoFile = errors.New("this process was started without a configuration file, so there is nothing to read again")

// Reloaded is what a reload of the configuration file did.
type Reloaded struct {
	Hash         string   `json:"hash"`          // of the file, in hexadecimal
	Changed      []string `json:"changed"`       // the fields that changed, never nil
	NeedsRestart []string `json:"needs_restart"` // those that take effect at a restart only, never nil
}

// Config is the configuration in force. It is read-only.
func (a *App) Config() *config.Config { return a.current.Load() }

// Reload reads the configuration file again and, when it is right, puts it in
// force for calls and jobs that begin from now on; those under way go on with
// what they began with. After an error everything is as before. It is safe for
// concurrent use; one reload waits for another.
func (a *App) Reload(ctx context.Context) (*Reloaded, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	r, err := a.reload()
	if err != nil {
		a.told.Refused()
		a.log.ErrorContext(ctx, "the configuration was not reloaded; the old one goes on", "err", err)
		return nil, err
	}
	a.log.InfoContext(ctx, "configuration reloaded", "hash", r.Hash, "changed", r.Changed)
	if len(r.NeedsRestart) > 0 {
		a.log.WarnContext(ctx, "some of the configuration needs a restart to take effect", "fields", r.NeedsRestart)
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
			err = fmt.Errorf("%w; perhaps because these take effect at a restart only: %s", err,
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

// apply puts a configuration in force. What can be refused comes first, and the
// pools before the policy that sends calls to them.
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
	if a.blobs != nil {
		a.blobs.Seal(set.seal)
	}
	a.hooks = set.webhooks.Orgs
	a.alerts.SetRules(alertRules(c))
	drop := set.policy.Providers.Adopt(a.guard.Policy().Providers)
	a.ids.setFile(c, set)
	if a.worker != nil {
		a.worker.SetConcurrency(set.workers)
	}
	if a.level != nil {
		_ = a.level.UnmarshalText([]byte(c.Log.Level)) // one of its choices
	}
	a.current.Store(c)
	drop()
	return nil
}

// durable refuses orgs whose calls go on without Redis where they cannot be kept
// on disk meanwhile.
func durable(c *config.Config) error {
	for _, o := range c.Orgs {
		if o.OnStoreFailure != "deny" && c.Store.JournalDir == "" {
			return fmt.Errorf("org %s has on_store_failure %s, which needs store.journal_dir", o.ID, o.OnStoreFailure)
		}
	}
	return nil
}

// list is never nil, so that it is [] in JSON.
func list(s []string) []string { return append([]string{}, s...) }

// reloadOnHangup reloads at every SIGHUP until ctx ends. Signals that come before
// it is called, but after hangups, are not lost.
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

// reloadBySignal reloads, and tells the audit as a reload over the network does. A reload
// that the audit does not take stays in force: the log has it.
func (a *App) reloadBySignal(ctx context.Context) {
	entry := tenants.AuditEntry{Actor: "signal", Action: "config.reload", At: time.Now().UTC()}
	hash := hex.EncodeToString(a.Config().Sum[:])
	done, err := a.Reload(ctx) // it logs itself what has become of it
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

// auditTime bounds the entry of a reload by a signal.
const auditTime = 10 * time.Second

// hangups catches SIGHUP, which otherwise ends a process.
func hangups() (hup <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
