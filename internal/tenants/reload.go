package tenants

import (
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

// ReloadedProcess is what became of the configuration file in one process.
type ReloadedProcess struct {
	// Process is its role, host and process id, such as serve web-1:4711.
	Process string `json:"process"`
	// Hash is the SHA-256 of the file that it runs with, in hexadecimal; empty after an error.
	Hash string `json:"hash,omitempty"`
	// Changed lists the paths that changed and are in effect.
	Changed []string `json:"changed,omitempty"`
	// NeedsRestart lists the paths that changed and take effect after a restart.
	NeedsRestart []string `json:"needs_restart,omitempty"`
	// Error is why it did not reload and runs with its previous configuration, or that it did not answer.
	Error string `json:"error,omitempty"`
}

// FollowReloads calls reload when ReloadAll asks all processes, until ctx is done. process is the name of this one.
func (s *Store) FollowReloads(ctx context.Context, process string, reload func(context.Context) ReloadedProcess) error {
	sub := s.rdb.Subscribe(ctx, reloadChan)
	defer sub.Close()
	go sub.Each(func(m redisconn.Message) {
		if m.Joined {
			return
		}
		done := reload(ctx)
		done.Process = process
		if err := s.answerReload(ctx, m.Text, done); err != nil {
			s.log.Warn("result of a reload not reported", "err", err)
		}
	})
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for {
		now := redisconn.Z{Score: float64(time.Now().Unix()), Member: process}
		_ = s.rdb.ZAdd(ctx, processesKey, now).Err() // again at the next tick
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.rdb.ZRem(last, processesKey, process).Err() // otherwise it counts as gone after goneAfter
			return nil
		case <-report.C:
		}
	}
}

func (s *Store) answerReload(ctx context.Context, id string, done ReloadedProcess) error {
	raw, err := json.Marshal(done)
	if err != nil {
		return err
	}
	pipe := s.rdb.Pipeline()
	pipe.HSet(ctx, reloadedKey+id, done.Process, raw)
	pipe.Expire(ctx, reloadedKey+id, goneAfter)
	return pipe.Exec(ctx)
}

// ReloadAll has every running process reload its copy of the configuration file, and returns the results by process.
// Those that do not answer within 10 seconds have an Error.
func (s *Store) ReloadAll(ctx context.Context) ([]ReloadedProcess, error) {
	now := time.Now()
	gone := strconv.FormatInt(now.Add(-goneAfter).Unix(), 10)
	running, err := s.rdb.ZRangeByScore(ctx, processesKey, redisconn.Between{Min: gone, Max: "+inf"}).Result()
	if err != nil {
		return nil, unavailable("find processes", err)
	}
	if err := s.rdb.ZRemRangeByScore(ctx, processesKey, "-inf", "("+gone).Err(); err != nil {
		return nil, unavailable("find processes", err)
	}
	id := fmt.Sprintf("%d-%d", now.UnixNano(), rand.Int64())
	if err := s.rdb.Publish(ctx, reloadChan, id).Err(); err != nil {
		return nil, unavailable("announce a reload", err)
	}
	return s.reloads(ctx, id, running)
}

// reloads waits until all running processes have answered.
func (s *Store) reloads(ctx context.Context, id string, running []string) (out []ReloadedProcess, err error) {
	answers := map[string]string{}
	silent := func(process string) bool { return answers[process] == "" }
	for end := time.Now().Add(reloadTime); time.Now().Before(end) && slices.ContainsFunc(running, silent); {
		time.Sleep(50 * time.Millisecond)
		answers, err = s.rdb.HGetAll(ctx, reloadedKey+id).Result()
		if err != nil {
			return nil, unavailable("read the results of a reload", err)
		}
	}
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
