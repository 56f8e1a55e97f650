package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// Wanted is what an attack needs of a deployment.
type Wanted struct {
	Attack   string
	Mock     string // URL of the provider
	Users    int
	Keys     int // of each user
	Budget   price.Nano
	Window   time.Duration
	Parallel int
	Replicas int
	Short    bool
	Clock    string // library for the clocks of services, from BuildClock; empty: their clocks are real
}

// Deployment is a running gateway with its stores. It is used by one attack, except that calls may be
// made concurrently.
type Deployment struct {
	Manifest *Manifest
	Store    *Link // the first service; nil without one

	mu       sync.Mutex // guards scope once calls are made
	scope    Scope
	links    []*Link
	services []*process
	helpers  []*process
	replicas []replica
	client   *http.Client // for steps and questions
	clock    string       // the file with the offset of the services' clocks
}

type replica struct {
	port, admin int
	process     *process
}

// Deploy starts a gateway in an empty directory.
func Deploy(ctx context.Context, m *Manifest, bin, dir string, w Wanted) (*Deployment, error) {
	d := &Deployment{Manifest: m, clock: filepath.Join(dir, "clock")}
	d.scope = Scope{
		Bin: bin, Dir: dir, Mock: w.Mock, Short: w.Short, Attack: w.Attack, Budget: usd(w.Budget), Parallel: w.Parallel,
		Nano: w.Budget, Tokens: w.Budget / price.Models[0].Output, Quota: w.Budget / 2000,
		Window: int(w.Window / time.Second), Models: models(), Service: map[string]string{}, Vars: map[string]string{},
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	d.client = &http.Client{Timeout: 30 * time.Second, Jar: jar} // some admin APIs begin with a session
	for i := range max(1, w.Users) {
		user := &User{Name: fmt.Sprintf("user%d", i), Vars: map[string]string{}}
		for j := range max(1, w.Keys) {
			user.Keys = append(user.Keys, newKey(fmt.Sprintf("user%d-key%d", i, j)))
		}
		d.scope.Users = append(d.scope.Users, user)
	}
	if err := d.start(ctx, w); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func newKey(id string) *Key {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	text := hex.EncodeToString(secret)
	return &Key{ID: id, Secret: "sk-" + text, Vars: map[string]string{"random": text}}
}

func usd(n price.Nano) string { return fmt.Sprintf("%d.%09d", n/price.USD, n%price.USD) }

func models() []ModelScope {
	out := make([]ModelScope, 0, len(price.Models))
	for _, m := range price.Models {
		out = append(out, ModelScope{m.Name, usd(m.Input), usd(m.Cached), usd(m.Output), usd(m.Image), usd(m.Second)})
	}
	return out
}

func (d *Deployment) start(ctx context.Context, w Wanted) error {
	for i, service := range d.Manifest.Services {
		if err := d.startService(ctx, service, w.Clock, i == 0); err != nil {
			return err
		}
	}
	for range max(1, w.Replicas) {
		r := replica{}
		var err error
		r.port, err = freePort()
		if err == nil {
			r.admin, err = freePort()
		}
		if err != nil {
			return err
		}
		d.replicas = append(d.replicas, r)
	}
	d.at(0)
	if err := d.steps(ctx, d.Manifest.Prepare); err != nil {
		return err
	}
	for i := range d.replicas {
		if err := d.Start(ctx, i); err != nil {
			return err
		}
	}
	for i, command := range d.Manifest.Start {
		if !command.Helper {
			continue
		}
		p, err := d.run(ctx, fmt.Sprintf("helper%d", i), command, 0)
		if err != nil {
			return err
		}
		d.helpers = append(d.helpers, p)
	}
	return d.steps(ctx, d.Manifest.Setup)
}

func (d *Deployment) startService(ctx context.Context, service Service, clock string, store bool) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	scope := d.scope
	scope.Port = port
	args, err := renderAll(service.Command, scope)
	if err != nil {
		return err
	}
	var env []string
	for name, value := range service.Env {
		env = append(env, name+"="+value)
	}
	if clock != "" {
		if err := d.StepClock(0); err != nil {
			return err
		}
		env = append(env, "LD_PRELOAD="+clock, "BUDGETBENCH_CLOCK="+d.clock)
	}
	p, err := startProcess(d.scope.Dir, service.Name, args, env)
	if err != nil {
		return err
	}
	d.services = append(d.services, p)
	if err := p.await(ctx, func() error { return dial(ctx, port) }); err != nil {
		return err
	}
	link, err := newLink(fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	d.links = append(d.links, link)
	d.scope.Service[service.Name] = link.Addr()
	if store {
		d.Store = link
	}
	return nil
}

// at makes templates see a replica.
func (d *Deployment) at(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scope.Replica, d.scope.Port, d.scope.Admin = i, d.replicas[i].port, d.replicas[i].admin
}

// Start starts a replica, also after Kill and Terminate.
func (d *Deployment) Start(ctx context.Context, i int) error {
	d.at(i)
	defer d.at(0)
	for name, text := range d.Manifest.Files {
		both, err := renderAll([]string{name, text}, d.scope)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(d.scope.Dir, both[0]), []byte(both[1]), 0o600); err != nil {
			return err
		}
	}
	p, err := d.run(ctx, fmt.Sprintf("gateway%d", i), d.Manifest.Start[0], d.replicas[i].port)
	d.replicas[i].process = p
	return err
}

func (d *Deployment) run(ctx context.Context, name string, command Command, port int) (*process, error) {
	args, err := renderAll(command.Command, d.scope)
	if err != nil {
		return nil, err
	}
	var env []string
	for variable, text := range command.Env {
		value, err := render(text, d.scope)
		if err != nil {
			return nil, err
		}
		env = append(env, variable+"="+value)
	}
	p, err := startProcess(d.scope.Dir, name, args, env)
	if err != nil {
		return nil, err
	}
	url, err := render(command.Ready, d.scope)
	if err == nil {
		err = p.await(ctx, func() error {
			switch {
			case url != "":
				return get200(ctx, url)
			case port != 0:
				return dial(ctx, port)
			}
			return nil
		})
	}
	return p, err
}

// Kill ends a replica with SIGKILL.
func (d *Deployment) Kill(ctx context.Context, i int) error {
	return d.end(ctx, i, syscall.SIGKILL, d.Manifest.Start[0].Kill)
}

// Terminate sends SIGTERM to a replica, and waits until it has ended, at most a minute.
func (d *Deployment) Terminate(ctx context.Context, i int) error {
	return d.end(ctx, i, syscall.SIGTERM, d.Manifest.Start[0].Term)
}

func (d *Deployment) end(ctx context.Context, i int, s syscall.Signal, instead []string) error {
	p := d.replicas[i].process
	d.at(i)
	defer d.at(0)
	if len(instead) == 0 {
		p.signal(s)
	} else if err := d.step(ctx, Step{Command: instead}, d.scope, nil); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return errors.New("the gateway has not ended a minute after SIGTERM")
	}
}

// Rotate replaces a user's keys.
func (d *Deployment) Rotate(ctx context.Context) error { return d.steps(ctx, d.Manifest.Rotate) }

// Target returns where a user calls a replica with a key, and the headers of the call.
func (d *Deployment) Target(user, key, i int) (base string, headers map[string]string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	scope := d.scope
	scope.Replica, scope.Port, scope.Admin = i, d.replicas[i].port, d.replicas[i].admin
	scope.User = d.scope.Users[user]
	scope.Key = scope.User.Keys[key]
	base, err = render(d.Manifest.Call.Base, scope)
	if err != nil {
		return "", nil, err
	}
	headers = map[string]string{}
	for name, text := range d.Manifest.Call.Headers {
		headers[name], err = render(text, scope)
		if err != nil {
			return "", nil, err
		}
	}
	return base, headers, nil
}

// Close ends all processes.
func (d *Deployment) Close() {
	for _, p := range d.helpers {
		p.stop()
	}
	for i, r := range d.replicas {
		if r.process == nil {
			continue
		}
		if kill := d.Manifest.Start[0].Kill; len(kill) > 0 { // a container does not end with its client
			d.at(i)
			_ = d.step(context.Background(), Step{Command: kill}, d.scope, nil)
		}
		r.process.stop()
	}
	for _, link := range d.links {
		link.close()
	}
	for _, p := range d.services {
		p.stop()
	}
}
