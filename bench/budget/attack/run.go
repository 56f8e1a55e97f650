package attack

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/llmguard/llmguard/bench/budget/gateway"
	"github.com/llmguard/llmguard/bench/budget/mock"
)

// Gateway is a gateway that attacks can be run against.
type Gateway struct {
	Manifest *gateway.Manifest
	Bin      string // the program
	Version  string
	Dir      string // for the files of its deployments
	Clock    string // see gateway.BuildClock
	Short    bool
}

// longest is how long one attack may take.
const longest = 20 * time.Minute

// shortWindow replaces windows of a minute in the short form.
const shortWindow = 15 * time.Second

// Run runs one attack against a fresh deployment of a gateway.
func Run(ctx context.Context, g Gateway, attack Attack) *Result {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r := &Result{
		Gateway: g.Manifest.Name, Version: g.Version, Attack: attack.Name, Title: attack.Title,
		Reason: g.Manifest.Reasons[attack.Name],
	}
	r.NA = g.cannot(attack)
	if r.NA != "" {
		return r
	}
	if err := g.run(ctx, attack, r); err != nil {
		r.Error = err.Error()
	}
	return r
}

// cannot returns why a gateway cannot do an attack, or nothing.
func (g Gateway) cannot(attack Attack) string {
	m := g.Manifest
	switch {
	case m.Cannot[attack.Name] != "":
		return m.Cannot[attack.Name]
	case (attack.Setup.Store || attack.Setup.Clock) && len(m.Services) == 0:
		return "no store"
	case attack.Setup.Clock && g.Clock == "":
		return "this machine has no C compiler, which builds the stepping clock"
	}
	return ""
}

func (g Gateway) run(ctx context.Context, attack Attack, r *Result) error {
	provider, err := mock.Start()
	if err != nil {
		return err
	}
	defer provider.Close()
	dir := filepath.Join(g.Dir, g.Manifest.Name, attack.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	setup := attack.Setup
	switch {
	case setup.Window == 0:
		setup.Window = day
	case g.Short:
		setup.Window = shortWindow
	}
	wanted := gateway.Wanted{
		Attack: attack.Name, Mock: provider.URL, Users: setup.Users, Keys: setup.Keys, Budget: setup.Budget,
		Window: setup.Window, Parallel: setup.Parallel, Replicas: setup.Replicas, Short: g.Short,
	}
	if setup.Clock {
		wanted.Clock = g.Clock
	}
	deployment, err := gateway.Deploy(ctx, g.Manifest, g.Bin, dir, wanted)
	if err != nil {
		return err
	}
	defer deployment.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	arena := &Arena{
		Ctx: ctx, Mock: provider, Gateway: deployment, Setup: setup, Short: g.Short, began: time.Now(),
		client: &http.Client{Transport: transport}, owner: map[string]int{},
	}
	if err := attack.Run(arena); err != nil {
		return err
	}
	return arena.judge(r)
}
