package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// masters is the number of servers of the cluster that spread measures.
const masters = 3

// spreading measures how the calls of one org load the masters of a cluster.
type spreading struct {
	servers []*child.Process
	addrs   []string
	proxies []*child.Process

	calls, processes, users int
}

// spread holds and settles calls of one org with several spreads on a cluster of its own, and prints
// CPU times per call. Rates would depend on how many cores are free here. How many calls share a
// script run depends on the calls in progress, not on how fast they are.
func spread(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench spread", flag.ContinueOnError)
	fs.SetOutput(stderr)
	s := &spreading{}
	fs.IntVar(&s.calls, "calls", 8000, "calls of each run, of all processes together")
	fs.IntVar(&s.processes, "processes", 4, "processes that make calls")
	fs.IntVar(&s.users, "users", 1000, "users, each with the same share of the calls")
	list := fs.String("callers", "2,16,64", "concurrent callers of each process, one block of the table each")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if s.calls < s.processes || s.processes < 1 || s.users < 1 {
		return errors.New("bench spread: counts must be positive, and each process needs a call")
	}
	dir, err := os.MkdirTemp("", "llmguard-spread-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer s.stop()
	if err := s.start(ctx, dir); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d processors shared by %d processes and %d masters; one org with %d users, %d calls\n"+
		"µs of CPU per call (hold and settle)\n\n", runtime.NumCPU(), s.processes, masters, s.users, s.calls)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "callers\tspread\tmasters\t\t\tbusiest\tcapacity\tprocess\tjoined\t")
	for _, text := range strings.Split(*list, ",") {
		callers, err := strconv.Atoi(text)
		if err != nil || callers < 1 {
			return fmt.Errorf("bench spread: -callers %q: expected positive numbers such as 2,16", *list)
		}
		if err := s.rows(ctx, table, callers); err != nil {
			return err
		}
	}
	return table.Flush()
}

// rows measures all spreads with so many callers of each process. The capacity of a master is what
// its core can do, so that of the org is the inverse of the busiest one's time.
func (s *spreading) rows(ctx context.Context, table io.Writer, callers int) error {
	first := 0.0
	for _, parts := range []int{1, 3, 6, 16, 64} {
		m, err := s.run(ctx, parts, callers)
		if err != nil {
			return err
		}
		most := slices.Max(m.masters[:])
		if parts == 1 {
			first = most
		}
		fmt.Fprintf(table, "%d\t%d\t", callers, parts)
		for _, us := range m.masters {
			fmt.Fprintf(table, "%.0f\t", us)
		}
		fmt.Fprintf(table, "%.0f\tx%.1f\t%.0f\t%.1f\t\n", most, first/most, m.process, m.joined)
	}
	return nil
}

// stop ends the processes.
func (s *spreading) stop() {
	for _, p := range slices.Concat(s.proxies, s.servers) {
		p.Stop()
	}
}

// start runs a cluster of empty masters, and the processes that make calls.
func (s *spreading) start(ctx context.Context, dir string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	const slots = 16384
	var buses []string
	for i := range masters {
		addr, err := child.FreeAddr(ctx)
		if err != nil {
			return err
		}
		bus, err := child.FreeAddr(ctx)
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr)
		_, busPort, _ := net.SplitHostPort(bus)
		name := "redis" + strconv.Itoa(i)
		p, err := child.Start(ctx, child.Command{Name: name, Path: path, Addr: addr, Dir: dir, Args: []string{
			"--port", port, "--cluster-port", busPort, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appenddirname", name, "--appendfsync", "everysec",
			"--cluster-enabled", "yes", "--cluster-config-file", name + ".conf",
		}})
		if err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		if err := p.WaitFor(ctx, startPatience, child.Dial); err != nil {
			return err
		}
		one := redis.NewClient(driver.Options(addr).Simple())
		err = one.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err()
		for n := range s.addrs {
			_, port, _ := net.SplitHostPort(s.addrs[n])
			err = errors.Join(err, one.Do(ctx, "cluster", "meet", "127.0.0.1", port, buses[n]).Err())
		}
		if err := errors.Join(err, one.Close()); err != nil {
			return err
		}
		s.addrs, buses = append(s.addrs, addr), append(buses, busPort)
	}
	if err := s.whole(ctx); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range s.processes {
		p, err := child.Start(ctx, child.Command{Name: "proxy" + strconv.Itoa(i), Path: self, Dir: dir, Args: []string{
			"spread-proxy", "-redis", strings.Join(s.addrs, ","), "-users", strconv.Itoa(s.users),
		}})
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, p)
	}
	return nil
}

// whole waits until every master knows the others.
func (s *spreading) whole(ctx context.Context) error {
	for _, addr := range s.addrs {
		one := redis.NewClient(driver.Options(addr).Simple())
		defer one.Close()
		for {
			text, err := one.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			known := fmt.Sprint("cluster_known_nodes:", masters)
			if strings.Contains(text, "cluster_state:ok") && strings.Contains(text, known) {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// spreadCosts are CPU times in µs per call.
type spreadCosts struct {
	masters [masters]float64
	process float64
	joined  float64 // holds or settles per script run
}

// run makes the calls with so many parts.
func (s *spreading) run(ctx context.Context, parts, callers int) (m spreadCosts, err error) {
	each := s.calls / s.processes
	if err := s.make(ctx, parts, callers, each/10+1); err != nil { // scripts, connections and the registry
		return m, err
	}
	before, runs, err := s.used(ctx)
	if err != nil {
		return m, err
	}
	if err := s.make(ctx, parts, callers, each); err != nil {
		return m, err
	}
	after, runsAfter, err := s.used(ctx)
	calls := float64(each * s.processes)
	for i := range after {
		us := float64((after[i] - before[i]).Microseconds()) / calls
		if i < masters {
			m.masters[i] = us
		} else {
			m.process += us
		}
	}
	m.joined = 2 * calls / float64(runsAfter-runs)
	return m, err
}

// used returns the CPU time of the masters and then the processes, and how often scripts ran.
func (s *spreading) used(ctx context.Context) (cpu []time.Duration, runs int, err error) {
	for _, p := range slices.Concat(s.servers, s.proxies) {
		d, err := p.CPU()
		if err != nil {
			return nil, 0, err
		}
		cpu = append(cpu, d)
	}
	for _, addr := range s.addrs {
		one := redis.NewClient(driver.Options(addr).Simple())
		text, err := one.Info(ctx, "commandstats").Result()
		if err := errors.Join(err, one.Close()); err != nil {
			return nil, 0, err
		}
		if _, text, ok := strings.Cut(text, "cmdstat_evalsha:calls="); ok {
			text, _, _ = strings.Cut(text, ",")
			n, _ := strconv.Atoi(text)
			runs += n
		}
	}
	return cpu, runs, nil
}

// make lets each process make n calls.
func (s *spreading) make(ctx context.Context, parts, callers, n int) error {
	work, ctx := errgroup.WithContext(ctx)
	for _, p := range s.proxies {
		work.Go(func() error {
			url := fmt.Sprintf("http://%s/?parts=%d&callers=%d&calls=%d", p.Addr, parts, callers, n)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: status %d: %s", p.Name, resp.StatusCode, text)
			}
			return err
		})
	}
	return work.Wait()
}
