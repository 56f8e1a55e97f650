package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	processesKey = prefix + "processes" // names of running processes, by when each last reported
	reloadChan   = prefix + "reload"    // ids of requests to reload
	reloadedKey  = prefix + "reloaded:" // with such an id: results by process

	reportEvery = 20 * time.Second
	goneAfter   = time.Minute      // without a report a process has ended
	reloadTime  = 10 * time.Second // for all processes to answer
)

// Reloaded is the result of a reload of the configuration file.
type Reloaded struct {
	// Hash is the SHA-256 of the file, in hexadecimal.
	Hash string `json:"hash"`
	// Changed lists the paths that changed and are in effect, such as orgs or queue.shares; never nil.
	Changed []string `json:"changed"`
	// NeedsRestart lists the paths that changed and take effect after a restart; never nil.
	NeedsRestart []string `json:"needs_restart"`
}

// ReloadedProcess is what became of the configuration file in one process.
type ReloadedProcess struct {
	// Process is its role, host and process id, and a random number: serve web-1:4711-5f0c2a91.
	Process string    `json:"process"`
	Result  *Reloaded `json:"result,omitempty"`
	// Error is why it did not reload and runs with its previous configuration, or that it did not answer.
	Error string `json:"error,omitempty"`
}

// FollowReloads calls reload when ReloadAll asks all processes, until ctx is done. name is the role, host and id of
// this one. A random number is added to it, because containers can have the same host and id.
func (s *Store) FollowReloads(ctx context.Context, name string, reload func(context.Context) (*Reloaded, error)) error {
	name = fmt.Sprintf("%s-%08x", name, rand.Uint32())
	sub := s.rdb.Subscribe(ctx, reloadChan)
	defer sub.Close()
	go sub.Each(func(m redisconn.Message) {
		if m.Joined {
			return
		}
		done := ReloadedProcess{Process: name}
		var err error
		done.Result, err = reload(ctx)
		if err != nil {
			done.Error = err.Error()
		}
		raw, err := json.Marshal(done)
		pipe := s.rdb.Pipeline()
		pipe.HSet(ctx, reloadedKey+m.Text, name, raw)
		pipe.Expire(ctx, reloadedKey+m.Text, goneAfter)
		err = cmp.Or(err, pipe.Exec(ctx))
		if err != nil {
			s.log.Warn("result of a reload not reported", "err", err)
		}
	})
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for {
		now := redisconn.Z{Score: float64(time.Now().Unix()), Member: name}
		_ = s.rdb.ZAdd(ctx, processesKey, now).Err() // again at the next tick
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.rdb.ZRem(last, processesKey, name).Err() // otherwise it counts as gone after goneAfter
			return nil
		case <-report.C:
		}
	}
}

// ReloadAll has every running process reload its copy of the configuration file, and returns the results by process.
// Those that do not answer within 10 seconds have an Error.
func (s *Store) ReloadAll(ctx context.Context) ([]ReloadedProcess, error) {
	now := time.Now()
	gone := strconv.FormatInt(now.Add(-goneAfter).Unix(), 10)
	id := fmt.Sprintf("%d-%d", now.UnixNano(), rand.Int64())
	err := s.rdb.ZRemRangeByScore(ctx, processesKey, "-inf", "("+gone).Err()
	running, failed := s.rdb.ZRangeByScore(ctx, processesKey, redisconn.Between{Min: gone, Max: "+inf"}).Result()
	err = cmp.Or(err, failed, s.rdb.Publish(ctx, reloadChan, id).Err())
	if err != nil {
		return nil, unavailable("announce a reload", err)
	}
	answers := map[string]string{}
	silent := func(process string) bool { return answers[process] == "" }
	for end := time.Now().Add(reloadTime); time.Now().Before(end) && slices.ContainsFunc(running, silent); {
		time.Sleep(50 * time.Millisecond)
		answers, err = s.rdb.HGetAll(ctx, reloadedKey+id).Result()
		if err != nil {
			return nil, unavailable("read the results of a reload", err)
		}
	}
	var out []ReloadedProcess
	for _, process := range running {
		if silent(process) {
			text := fmt.Sprintf("no answer within %s; check its log, or whether it has just ended", reloadTime)
			out = append(out, ReloadedProcess{Process: process, Error: text})
		}
	}
	for _, raw := range answers {
		var done ReloadedProcess
		if err := json.Unmarshal([]byte(raw), &done); err != nil {
			return nil, err
		}
		out = append(out, done)
	}
	slices.SortFunc(out, func(a, b ReloadedProcess) int { return strings.Compare(a.Process, b.Process) })
	return out, nil
}
