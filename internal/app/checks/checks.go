// Package checks has the list of all checks: what `check`, `check --live`, `doctor` and the console's
// overview look for, in a configuration and in a deployment.
package checks

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tenants"
)

// check is one check. What it needs decides where it runs.
type check struct {
	name  string // what it looks for
	area  string // of its findings
	needs need
	run   func(context.Context, *examination, *diagnose.Report)
}

// need is what a check needs, as bits.
type need uint

// The needs. File, Deployment, State and Stops meet theirs below.
const (
	needFile      need = 1 << iota // a file as it was written, in which findings have positions
	needModels                     // the models that orgs may use, and their prices
	needOrgs                       // the orgs in effect; in check, the file's
	needStops                      // the stops of spending
	needMachine                    // the machine that the file is for
	needRedis                      // a Redis that answers
	needServices                   // the services that the file names may be called
	needProcesses                  // running processes that were asked
	needBooks                      // the holds and charges of every org may be read, which takes long
	needExports                    // the exports may be listed, which can take long
	needState                      // the state of this process
)

// list is all checks, in the order in which they run. To add one, add a row.
func list() []check {
	return []check{
		{"size of the file", "config", needFile, contents},
		{"variables that are not set", "config", needFile, secretsOfCalls},
		{"unencrypted credentials", "security", needFile, clearCredentials},
		{"secrets that all users can read", "security", needFile, literals},
		{"admin listener open to every network", "security", needFile, adminListener},
		{"trusted proxies that any client can be", "security", needFile, trustedProxies},
		{"secrets that can be guessed", "security", needFile, guessableSecrets},
		{"models that are not served or priced", "models", needModels, models},
		{"models that match none", "config", needFile | needModels, unmatched},
		{"limits without effect", "limits", needFile, uselessLimits},
		{"prices of another unit", "prices", needModels, unlikelyPrices},
		{"old prices", "prices", needModels, oldPrices},
		{"pools without calls", "config", needFile, poolsWithoutCalls},
		{"quotas of input and output", "config", needFile, mergedQuotas},
		{"base URLs of another provider", "config", needFile, wrongHosts},
		{"version segment of base URLs", "config", needFile, accounts},
		{"expired keys", "config", needFile, expiredKeys},
		{"downgrades that cannot be served", "config", needFile, downgrades},
		{"an org called all", "config", needFile, orgCalledAll},
		{"orgs without a bound", "limits", needOrgs, unbounded},
		{"stopped spending", "spending", needStops, stopped},
		{"certificates", "machine", needMachine, certificates},
		{"writable directories", "machine", needMachine, directories},
		{"free ports", "machine", needMachine, ports},
		{"settings of Redis", "redis", needRedis, redisSettings},
		{"durability", "redis", needRedis, durability},
		{"condition of Redis", "redis", needRedis, redisCondition},
		{"journal", "journal", needFile | needServices, noJournal},
		{"providers", "provider", needServices, providersAnswer},
		{"running processes", "process", needProcesses, runningProcesses},
		{"same file everywhere", "config", needProcesses, sameFile},
		{"holds and late charges", "money", needRedis | needBooks, heldMoney},
		{"exports of older versions", "finance", needExports, leftovers},
		{"closed limits", "limits", needRedis | needState, closedLimits},
		{"pools", "queue", needRedis | needState, poolStates},
		{"disabled webhook targets", "webhooks", needRedis | needState, disabledTargets},
	}
}

// examination runs checks as their needs are met. The checks of doctor and the overview judge what runs, not
// how it is written.
type examination struct {
	list     []check
	met      need
	findings []diagnose.Finding

	cfg    *config.Config
	policy *guard.Policy
	orgs   *config.Config // the orgs in effect, and their policy
	rules  *guard.Policy
	stops  map[string]*tenants.Stop // of orgs, and of tenants.AllOrgs

	lacking   diagnose.Level // of what this machine lacks
	running   func(ctx context.Context, path string) bool
	rdb       redisconn.DB
	server    *diagnose.Server
	processes []*diagnose.Process
	parts     *app.Parts
}

func examine(cfg *config.Config, policy *guard.Policy) *examination {
	return &examination{list: list(), cfg: cfg, policy: policy, orgs: cfg, rules: policy}
}

// File checks a configuration file, as check does; with live also what it needs, as check --live. Without live, what
// this machine lacks is a warning: it may be for another one. running reports whether a process of this deployment uses
// the listener that a path names.
func File(
	ctx context.Context, cfg *config.Config, policy *guard.Policy, live bool,
	running func(ctx context.Context, path string) bool,
) []diagnose.Finding {
	e := examine(cfg, policy)
	e.running, e.lacking = running, diagnose.Warning
	if live {
		e.lacking = diagnose.Error
	}
	return e.file(ctx, live)
}

func (e *examination) file(ctx context.Context, live bool) []diagnose.Finding {
	defer e.close()
	e.meet(ctx, needFile|needModels|needOrgs)
	e.meet(ctx, needMachine)
	if live {
		e.connect(ctx)
		e.meet(ctx, needServices)
	}
	e.locate()
	return e.findings
}

// Deployment checks running processes and what they share, as doctor does; cfg is their configuration file. The most
// severe findings come first.
func Deployment(
	ctx context.Context, cfg *config.Config, policy *guard.Policy, processes []*diagnose.Process,
) []diagnose.Finding {
	e := examine(cfg, policy)
	e.processes = processes
	return e.deployment(ctx)
}

func (e *examination) deployment(ctx context.Context) []diagnose.Finding {
	defer e.close()
	e.meet(ctx, needProcesses)
	e.connect(ctx)
	e.loadOrgs(ctx)
	for _, n := range []need{needBooks, needModels, needExports} {
		e.meet(ctx, n)
	}
	diagnose.Sort(e.findings)
	return e.findings
}

// State checks a process and what it uses, as the console's overview does: what is read in a moment.
func State(ctx context.Context, p *app.Parts) []diagnose.Finding { return ofProcess(p).state(ctx) }

func (e *examination) state(ctx context.Context) []diagnose.Finding {
	e.ask(ctx)
	e.meet(ctx, needModels|needOrgs|needState)
	diagnose.Sort(e.findings)
	return e.findings
}

// Stops returns what spending is stopped, for the console's banner. It reads nothing from Redis.
func Stops(ctx context.Context, p *app.Parts) []diagnose.Finding {
	e := ofProcess(p)
	e.meet(ctx, needStops)
	return e.findings
}

func ofProcess(p *app.Parts) *examination {
	e := examine(p.Identities.Effective(), p.Guard.Policy())
	e.stops, e.rdb, e.parts = p.Identities.Store.Snapshot().Stops, p.Redis, p
	return e
}

// checkTime bounds each check. Running processes have bounds of their own.
const checkTime = 15 * time.Second

// meet adds needs, and runs the checks that all needs are now met of.
func (e *examination) meet(ctx context.Context, needs need) {
	before := e.met
	e.met |= needs
	for _, c := range e.list {
		if c.needs&^e.met == 0 && c.needs&^before != 0 {
			e.run(ctx, c.area, func(ctx context.Context, r *diagnose.Report) { c.run(ctx, e, r) })
		}
	}
}

// run adds the findings of a function. Only those about a file have positions.
func (e *examination) run(ctx context.Context, area string, look func(context.Context, *diagnose.Report)) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	r := diagnose.Report{Area: area}
	look(ctx, &r)
	for _, f := range r.Findings {
		if e.met&needFile == 0 {
			f.What, f.Path = strings.TrimPrefix(f.What, f.Path+": "), ""
		} else if f.Path != "" {
			f.File = e.cfg.Name
		}
		e.findings = append(e.findings, f)
	}
}

// connect connects to Redis until close, and asks it.
func (e *examination) connect(ctx context.Context) {
	e.run(ctx, "redis", func(_ context.Context, r *diagnose.Report) {
		if !e.cfg.Redis.Configured() {
			r.Add(diagnose.Error, "no Redis configured; it stores limits, jobs and the ledger",
				"Set redis.addresses or redis.url.")
			return
		}
		var err error
		e.rdb, err = app.Connect(e.cfg.Redis)
		if err != nil {
			r.Add(diagnose.Error, err.Error(), "")
		}
	})
	if e.rdb != nil {
		e.ask(ctx)
	}
}

// ask meets the need for a Redis that answers, or adds why it does not.
func (e *examination) ask(ctx context.Context) {
	e.run(ctx, "redis", func(ctx context.Context, r *diagnose.Report) { e.server = diagnose.AskRedis(ctx, e.rdb, r) })
	if e.server != nil {
		e.meet(ctx, needRedis)
	}
}

func (e *examination) close() {
	if e.rdb != nil {
		_ = e.rdb.Close()
	}
}

// loadOrgs reads the orgs in effect from Redis, if it answers.
func (e *examination) loadOrgs(ctx context.Context) {
	if e.rdb == nil {
		return
	}
	loading, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	ids, err := app.LoadIdentities(loading, e.cfg, e.rdb, slog.New(slog.DiscardHandler))
	if err == nil {
		e.orgs, e.rules, e.stops = ids.Effective(), ids.Policy(), ids.Store.Snapshot().Stops
		e.meet(ctx, needOrgs|needStops)
	}
}

// locate fills in the positions of findings that name a path of the configuration. It leaves them
// empty if the file cannot be read.
func (e *examination) locate() {
	places, err := config.LoadPlaces(e.cfg.Name)
	for i := range e.findings {
		f := &e.findings[i]
		if f.Path == "" || err != nil {
			continue
		}
		at := places.At(f.Path, f.What)
		f.Line, f.Column, f.Excerpt = at.Line, at.Column, at.Excerpt()
	}
}
