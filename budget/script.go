package budget

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

// script is a Lua script with its name in metrics.
type script struct {
	*redisconn.Script
	name  string
	reads bool // it leaves held and charged amounts unchanged
}

// scripts are the scripts of a Store; tests replace them with broken ones to see that they notice.
type scripts struct {
	hold, settle, void, expire                        script // run through a request
	extend, renew, peek, count, reset, adjust, export script
	register, relinquish, seen, refusals, shadowSince script
	labelValue, runNew, runChange, frees              script

	names []string // of all, for metrics
}

var loaded = loadAll(lua.Files())

func loadAll(files fs.FS) scripts {
	var names []string
	load := func(name string) script {
		names = append(names, name)
		return script{Script: lua.LoadFrom(files, name), name: name}
	}
	reads := func(name string) script {
		sc := load(name)
		sc.reads = true
		return sc
	}
	all := scripts{
		hold:   load("hold"),
		settle: load("settle"),
		void:   load("void"),
		expire: load("expire"),

		extend:     load("extend"),
		renew:      reads("renew"),
		register:   load("register"),
		relinquish: load("relinquish"),
		seen:       load("seen"),
		refusals:   load("refusals"),

		shadowSince: reads("shadow_since"),
		labelValue:  reads("label_value"),
		runNew:      reads("run_new"),
		runChange:   reads("run_change"),

		peek:   reads("peek"),
		frees:  reads("frees"),
		count:  reads("count"),
		reset:  load("reset"),
		adjust: load("adjust"),
		export: reads("export"),
	}
	all.names = names
	return all
}

// runner sends scripts to the store and reads their replies.
type runner struct {
	money   Scripts // for scripts that change what is held or charged
	others  Scripts
	scripts scripts
	clock   *clock
	metrics *metrics
}

// run runs a script and returns its reply.
func (r *runner) run(ctx context.Context, sc script, keys []string, args []any) (string, error) {
	began := time.Now()
	by := r.money
	if sc.reads {
		by = r.others
	}
	reply, err := sc.Run(ctx, by, keys, args...).Text()
	r.metrics.took(sc.name, time.Since(began).Seconds())
	if err != nil {
		return "", storeError(sc.name, err)
	}
	return reply, nil
}

// send executes a request and returns its reply.
func (r *runner) send(ctx context.Context, q *request) (string, error) {
	began := time.Now()
	err := r.money.Process(ctx, q.Late)
	if redisconn.NoScript(err) {
		q.text = true
		q.SetErr(nil)
		err = r.money.Process(ctx, q.Late)
	}
	r.metrics.took(q.script.name, time.Since(began).Seconds())
	if err != nil { // the request may still be in progress
		return "", storeError(q.script.name, err)
	}
	return q.answer()
}

// storeError classifies an error of the store.
var storeError = outage.Fault

// answer is a reply: "<verdict>,<n>,..;<row>;<row>.." with a row per limit.
type answer struct {
	verdict string
	head    []int64 // numbers after the verdict; the first is Redis's time
	rows    []row
}

// row is the status of a limit: used, held, resets, frees and refused if told is set, otherwise the
// numbers of the state as the script wrote it.
type row struct {
	told    bool
	numbers []int64
}

func (a answer) at() time.Time { return time.UnixMicro(a.head[0]) }

// decode decodes all replies.
func decode(reply string) (answer, error) {
	var a answer
	head, rest, more := strings.Cut(reply, ";")
	verdict, numbers, _ := strings.Cut(head, ",")
	a.verdict = verdict
	rows := strings.Count(rest, ";") + 1
	all := make([]int64, 0, 8+5*rows)
	var err error
	all, err = appendIntegers(all, numbers)
	if err != nil || len(all) == 0 {
		return a, fmt.Errorf("budget: reply %.80q is not understood", reply)
	}
	a.head = all[:len(all):len(all)]
	if more {
		a.rows = make([]row, 0, rows)
	}
	for more {
		var text string
		text, rest, more = strings.Cut(rest, ";")
		text, told := strings.CutPrefix(text, "=")
		from := len(all)
		all, err = appendIntegers(all, text)
		n := all[from:len(all):len(all)]
		if err != nil || len(n) < 2 || told && len(n) != 5 {
			return a, fmt.Errorf("budget: reply %.80q is not understood", reply)
		}
		a.rows = append(a.rows, row{told, n})
	}
	return a, nil
}

// integers parses numbers separated by commas or slashes.
func integers(text string) ([]int64, error) { return appendIntegers(make([]int64, 0, 8), text) }

func appendIntegers(out []int64, text string) ([]int64, error) {
	for len(text) > 0 {
		end := strings.IndexAny(text, ",/")
		field := text
		if end >= 0 {
			field, text = text[:end], text[end+1:]
		} else {
			text = ""
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return out, err
		}
		out = append(out, n)
	}
	return out, nil
}

// maxSteps bounds the runs that remove old charges from a limit, 500 in each.
const maxSteps = 20_000

// ask runs a script whose arguments depend on the time; see askUntil.
func (r *runner) ask(
	ctx context.Context, sc script, keysAndArgs func(now time.Time) ([]string, []any, error),
) (answer, error) {
	return r.askUntil(sc.name, func(now time.Time) (string, error) {
		keys, args, err := keysAndArgs(now)
		if err != nil {
			return "", err
		}
		return r.run(ctx, sc, keys, args)
	})
}

// askEach runs a script on the states of a hold. Its arguments are the time, args, and for each state its kind,
// its parameters and what more returns.
func (r *runner) askEach(
	ctx context.Context, sc script, h *Hold, more func(i int, now time.Time) []any, args ...any,
) (answer, error) {
	return r.ask(ctx, sc, func(now time.Time) ([]string, []any, error) {
		all := append([]any{r.clock.given()}, args...)
		for i := range h.states {
			st := &h.states[i]
			p1, p2, err := st.params(now)
			if err != nil {
				return nil, nil, err
			}
			all = append(append(all, st.Kind, p1, p2), more(i, now)...)
		}
		return h.keys(), all, nil
	})
}

func noMore(int, time.Time) []any { return nil }

// askFor sends a request that depends on the time; see askUntil.
func (r *runner) askFor(
	ctx context.Context, sc script, requestAt func(now time.Time) (*request, error),
) (answer, error) {
	return r.askUntil(sc.name, func(now time.Time) (string, error) {
		q, err := requestAt(now)
		if err != nil {
			return "", err
		}
		return r.send(ctx, q)
	})
}

// askUntil calls askAt with the current time, and again with Redis's own time if ours was too far
// off. A script that stopped halfway, so that Redis could serve others, is repeated until it has
// finished.
func (r *runner) askUntil(name string, askAt func(now time.Time) (string, error)) (answer, error) {
	now := r.clock.now()
	for try, steps := 0, 0; ; {
		reply, err := askAt(now)
		if err != nil {
			return answer{}, err
		}
		a, err := decode(reply)
		if err != nil {
			return answer{}, err
		}
		r.clock.seen(a.at())
		switch a.verdict {
		case "stale":
			steps++
			if steps == maxSteps {
				return a, fmt.Errorf("budget: %s: a limit takes too many steps", name)
			}
		case "skew":
			try++
			if try == 3 {
				return a, fmt.Errorf("budget: %s: the store's clock keeps jumping", name)
			}
			now = a.at()
		default:
			return a, nil
		}
	}
}
