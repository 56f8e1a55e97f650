package main

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/goredis"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/wire"
)

// spreadProxy is a child process of spread: it holds and settles calls as a proxy does, with a store
// and connections of its own.
type spreadProxy struct {
	store *budget.Store
	users int
	parts atomic.Int64 // of the org
}

// serveSpread runs a spreadProxy until it is stopped.
func serveSpread(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	p := &spreadProxy{}
	addrs := fs.String("redis", "", "addresses of the cluster, separated by commas")
	fs.IntVar(&p.users, "users", 1, "users of the org")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	rdb := driver.Open(driver.Cluster, driver.Options(strings.Split(*addrs, ",")...))
	defer rdb.Close()
	db := goredis.New(rdb)
	p.store = budget.New(db, budget.Options{
		Lease: time.Hour, Scripts: redisconn.Joined(db, budget.Join(db)),
		Spread: func(string) budget.Spread { return budget.Spread{Parts: int(p.parts.Load()), By: budget.User} },
	})
	return listen(ctx, &http.Server{Handler: p}, "", stdout)
}

// ServeHTTP makes the calls that the query asks for, and answers when they are done.
func (p *spreadProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int {
		n, _ := strconv.Atoi(r.URL.Query().Get(name))
		return n
	}
	p.parts.Store(int64(number("parts")))
	callers, calls := number("callers"), int64(number("calls"))
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		all.Go(func() {
			for next.Add(1) <= calls {
				if err := p.call(r.Context()); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	if err := <-errs; err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (p *spreadProxy) call(ctx context.Context) error {
	user := strconv.Itoa(rand.IntN(p.users))
	most := budget.Amounts{Cost: 12_345_678, Tokens: 4000}
	h, err := p.store.Hold(ctx, budget.Terms{
		Limits: []budget.Limit{
			{
				ID: "hour", Subject: budget.User, Metric: budget.Cost,
				Shape: budget.Shape{Kind: budget.Window, Amount: budget.MaxAmount, Window: time.Hour},
			},
			{
				ID: "minute", Subject: budget.Key, Metric: budget.Requests,
				Shape: budget.Shape{Kind: budget.Window, Amount: 1_000_000, Window: time.Minute},
			},
		},
		Call: ledger.Call{
			ID: wire.NewCallID(), Org: "acme", User: "user" + user, Key: "key" + user, Model: "gpt-5", Provider: "openai",
			Endpoint: "chat.completions", PriceVersion: "2026-11-01",
		},
		Max: most, Expected: most,
	})
	if err != nil {
		return err
	}
	_, err = p.store.Settle(ctx, h, budget.Settlement{
		Actual: budget.Amounts{Cost: 2_345_678, Tokens: 1200}, Outcome: "ok", Status: 200,
	})
	return err
}
