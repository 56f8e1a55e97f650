package child

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	f := func(stat string, want time.Duration, ok bool) {
		t.Helper()
		got, err := parseStat(stat)
		if got != want || (err == nil) != ok {
			t.Errorf("parseStat(%q) = %v, %v; want %v, ok %v", stat, got, err, want, ok)
		}
	}
	f("7 (a b) c) S 1 7 7 0 -1 4194560 10 20 0 0 123 45 6 7 20 0 3 0 99 1 2", 1680*time.Millisecond, true)
	f("7 (x) Z 1 7 7 0 -1 4194560 10 20 0 0 123 45 6 7 20 0 3 0 99 1 2", 0, false)
	f("7 (x) S 1", 0, false)
	f("", 0, false)
}

func TestCPUCountsTheChildren(t *testing.T) {
	p, err := Start(t.Context(), Command{
		Name: "burn", Path: "/bin/sh", Dir: t.TempDir(), Addr: "127.0.0.1:1",
		Args: []string{"-c", "(while :; do :; done) & wait"},
	})
	if err != nil {
		t.Fatal(err)
	}
	child := 0
	defer func() {
		if proc, err := os.FindProcess(child); err == nil && child > 0 {
			_ = proc.Kill()
		}
		p.Stop()
	}()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		child = firstChild(p.cmd.Process.Pid)
		own, err := parseStatFile(p.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used, err := p.CPU(); err == nil && used >= own+20*time.Millisecond {
			return
		}
	}
	t.Error("the child's processor time was not seen")
}

func firstChild(pid int) int {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	n := 0
	_, _ = fmt.Sscan(string(list), &n)
	return n
}

func parseStatFile(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(raw))
}
