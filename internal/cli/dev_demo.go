package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// demoOrg is a department of the company that dev --demo shows.
type demoOrg struct {
	ID, Name string
	Burst    string // what a user may spend in one burst
	PerHour  string // refill per hour
	Users    []string
}

var demoOrgs = []demoOrg{
	{
		"support", "Customer support", "$1", "$2",
		strings.Fields("anna boris carla dmitri elena farid greta hugo ines jonas"),
	},
	{"search", "Search and ranking", "$1", "$2", strings.Fields("karin leo mira nils olga pavel quinn rosa samir tara")},
	{"research", "Research", "$1", "$4", strings.Fields("ursula viktor wanda xenia yusuf zoe amir bella casper dora")},
	{"mobile", "Mobile apps", "$1", "$2", strings.Fields("emil fiona goran hanna igor julia kamil lara milan nina")},
	{
		"finance", "Finance and legal", "$1", "$1",
		strings.Fields("oskar petra rafael sofia tomas uma vera willem yara zeno"),
	},
}

// The user of the demo's runaway program.
const (
	runaway    = "casper"
	runawayOrg = "research"
)

// demoCadence makes a demo call take between 0.2 and 4 seconds.
var demoCadence = fakeprovider.Cadence{First: 150 * time.Millisecond, Token: 2 * time.Millisecond}

const (
	demoSeed     = 17
	demoHistory  = 600                    // calls made without pauses at the start, so that the console has data
	demoCallers  = 12                     // concurrent callers meanwhile
	demoPace     = 700 * time.Millisecond // between calls afterwards
	demoLoops    = 24                     // concurrent loops of the runaway program
	demoPatience = 2 * time.Minute        // client timeout of a waiting call
)

// demoModels are the models in use, most frequent first.
var demoModels = []string{"gpt-5.4-mini", "gpt-4o-mini", "gpt-4o", "gpt-5.4"}

// demoTraffic makes the calls of the demo's users. The calls, their order and their sizes are
// the same in each run.
type demoTraffic struct {
	url    string
	keys   devKeys
	client *http.Client
	rng    *rand.Rand
	users  []string
}

func newDemoTraffic(url string, keys devKeys) *demoTraffic {
	d := &demoTraffic{
		url: url, keys: keys, client: &http.Client{Timeout: demoPatience}, rng: rand.New(rand.NewPCG(demoSeed, 0)),
		users: devValues{Demo: demoOrgs}.users(),
	}
	d.users = slices.DeleteFunc(d.users, func(user string) bool { return user == runaway }) // its calls would wait
	d.rng.Shuffle(len(d.users), func(i, j int) { d.users[i], d.users[j] = d.users[j], d.users[i] })
	return d
}

func (d *demoTraffic) run(ctx context.Context) {
	calls := make(chan demoCall)
	var all sync.WaitGroup
	for range demoCallers {
		all.Go(func() {
			for c := range calls {
				d.send(ctx, c)
			}
		})
	}
	for range demoLoops {
		all.Go(func() {
			for ctx.Err() == nil {
				d.send(ctx, runawayCall)
			}
		})
	}
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case calls <- d.next():
		case <-ctx.Done():
		}
		if n >= demoHistory {
			pause(ctx, demoPace)
		}
	}
	close(calls)
	all.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type demoCall struct {
	user, model   string
	input, output int // words of the prompt, tokens of the response
}

// runawayCall is the call that the runaway program repeats.
var runawayCall = demoCall{user: runaway, model: "gpt-5.4", input: 3000, output: 1500}

// next returns the next call. A few users make most of the calls.
func (d *demoTraffic) next() demoCall {
	few := func(n int) int { return min(int(d.rng.ExpFloat64()*float64(n)/4), n-1) }
	return demoCall{
		user: d.users[few(len(d.users))], model: demoModels[few(len(demoModels))],
		input: 50 + d.rng.IntN(800), output: 20 + d.rng.IntN(300),
	}
}

// send makes one call. It ignores the response; the console shows the outcome.
func (d *demoTraffic) send(ctx context.Context, c demoCall) {
	text := fmt.Sprintf("[fake: output=%d] ", c.output) + strings.Repeat("report ", c.input)
	body, err := json.Marshal(map[string]any{
		"model": c.model, "max_completion_tokens": c.output + 200,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+d.keys[c.user])
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		pause(ctx, time.Second) // the client timed out, or the proxy is shutting down
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		pause(ctx, time.Second)
	}
}
