// Package child runs the processes of a benchmark: it starts them, reads their CPU time from
// /proc, and stops them by process id.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a running child, including its own children. Its methods are not safe for
// concurrent use.
type Process struct {
	Name string
	Addr string // host:port it serves on
	Log  string // file with its output

	cmd *exec.Cmd
}

// Command describes a process to start.
type Command struct {
	Name string
	Path string
	Args []string
	Addr string // known address; if empty, the process prints it on its first line
	Dir  string // folder of its log
	Env  []string
}

// Start starts a process. It returns when the address is known, but the process may not be
// ready: see WaitFor.
func Start(ctx context.Context, c Command) (*Process, error) {
	p := &Process{Name: c.Name, Addr: c.Addr, Log: filepath.Join(c.Dir, c.Name+".log")}
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(ctx, c.Path, c.Args...)
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 3 * time.Second
	if c.Addr != "" {
		p.cmd.Stdout = log
		return p, p.cmd.Start()
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s printed no address: %w\n%s", c.Name, err, p.Tail())
	}
	p.Addr = strings.TrimSpace(line)
	return p, nil
}

// WaitFor retries until ready succeeds, the process exits or patience has passed.
func (p *Process) WaitFor(ctx context.Context, patience time.Duration,
	ready func(ctx context.Context, addr string) error,
) error {
	deadline := time.Now().Add(patience)
	for {
		err := ready(ctx, p.Addr)
		if err == nil {
			return nil
		}
		if _, gone := p.CPU(); gone != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name, err, p.Tail())
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// Dial is the simplest readiness check.
func Dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// Stop sends SIGTERM to the process, and kills it if it does not exit.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(3*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// tick is the unit of /proc/<pid>/stat: USER_HZ is 100 on every Linux that Go supports.
const tick = 10 * time.Millisecond

// CPU returns the CPU time (user and system) that the process and its living children have used
// so far, in steps of 10 ms.
func (p *Process) CPU() (time.Duration, error) { return cpu(p.cmd.Process.Pid) }

func cpu(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	total, err := parseStat(string(raw))
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return total, nil // a kernel without this file; only nginx has children
	}
	for _, word := range strings.Fields(string(list)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		if used, err := cpu(child); err == nil {
			total += used
		}
	}
	return total, nil
}

// parseStat parses utime and stime, fields 14 and 15. The name in field 2 may contain anything,
// so counting starts after its closing parenthesis.
func parseStat(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("stat without a name")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 13 || fields[0] == "Z" {
		return 0, errors.New("the process has ended")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// FreeAddr returns a loopback address that is currently free.
func FreeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Announce prints the address of a listener for Start to read.
func Announce(w io.Writer, l net.Listener) error {
	_, err := fmt.Fprintln(w, l.Addr())
	return err
}
