// Command pictures makes the pictures of the documents: the console in a browser and `llmguard top` in a terminal,
// both from a running `llmguard dev --demo`, and the drawings from their Mermaid files.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// patience limits the whole run.
const patience = 5 * time.Minute

func main() {
	out := flag.String("out", "../docs/pictures", "directory to write to")
	still := flag.Bool("drawings", false, "make the drawings only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // the program's own
	ctx, end := context.WithTimeout(ctx, patience)
	err := draw(ctx, *out, *still)
	end()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, out string, still bool) error {
	tmp, err := os.MkdirTemp("", "pic") // short: it holds a socket
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := drawings(ctx, out, tmp); err != nil || still {
		return err
	}
	binary := filepath.Join(tmp, "llmguard")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/llmguard")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building llmguard: %w\n%s", err, text)
	}
	d, err := startDemo(ctx, binary, tmp)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.awaitLimit(ctx); err != nil {
		return err
	}
	return errors.Join(d.terminal(ctx, filepath.Join(out, "top.svg")), d.console(ctx, out))
}

// demo is a running `llmguard dev --demo`.
type demo struct {
	binary, tmp       string
	site, key, config string
	cmd               *exec.Cmd
}

func startDemo(ctx context.Context, binary, tmp string) (*demo, error) {
	d := &demo{binary: binary, tmp: tmp}
	d.cmd = exec.CommandContext(ctx, binary, "dev", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	d.cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp, "REDIS_URL=")
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(os.Interrupt) } // so that it stops its Redis
	d.cmd.Stderr = os.Stderr
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Press Ctrl-C") {
		name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "  ")
		for field, at := range map[string]*string{"console": &d.site, "admin key": &d.key, "config": &d.config} {
			if name == field {
				*at = strings.TrimSpace(value)
			}
		}
	}
	if d.site == "" || d.key == "" || d.config == "" {
		d.stop()
		return nil, errors.New("llmguard dev did not print its console, admin key and configuration")
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return d, nil
}

func (d *demo) stop() {
	_ = d.cmd.Process.Signal(os.Interrupt)
	_ = d.cmd.Wait()
}

// awaitLimit waits until the runaway program has reached its limit and its calls wait.
func (d *demo) awaitLimit(ctx context.Context) error {
	for ctx.Err() == nil {
		text, err := exec.CommandContext(ctx, d.binary, "top", "--once", "-o", "json", "-c", d.config).Output()
		var snap struct {
			Waiting int `json:"waiting"`
		}
		if err == nil && json.Unmarshal(text, &snap) == nil && snap.Waiting > 0 {
			sleep(ctx, 50*time.Second) // the views show the last minute
			return nil
		}
		sleep(ctx, time.Second)
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// terminal runs `llmguard top` in tmux, and draws its screen while the user of the runaway program is being stopped.
func (d *demo) terminal(ctx context.Context, file string) error {
	tmux := func(args ...string) ([]byte, error) {
		args = append([]string{"-S", filepath.Join(d.tmp, "tmux"), "-f", os.DevNull}, args...)
		return exec.CommandContext(ctx, "tmux", args...).Output()
	}
	top := fmt.Sprintf("COLORTERM=truecolor %s top -c %s", d.binary, d.config)
	if _, err := tmux("new-session", "-d", "-x", "132", "-y", "22", top); err != nil {
		return fmt.Errorf("tmux: %w", err)
	}
	defer func() { _, _ = tmux("kill-server") }()
	sleep(ctx, 3*time.Second)
	// The first of the users tab is the runaway program. Its user is disabled, up to the question.
	for _, keys := range [][]string{{"2", "d"}, {"-l", "runaway loop"}, {"Enter"}} {
		if _, err := tmux(append([]string{"send-keys"}, keys...)...); err != nil {
			return fmt.Errorf("tmux: %w", err)
		}
		sleep(ctx, 2*time.Second)
	}
	screen, err := tmux("capture-pane", "-e", "-p")
	if err != nil {
		return fmt.Errorf("tmux: %w", err)
	}
	return os.WriteFile(file, terminalSVG(string(screen)), 0o644)
}

// console signs in and takes a screenshot of the overview, which begins with the runaway program.
func (d *demo) console(ctx context.Context, out string) error {
	page, end, err := browser(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, step := range []chromedp.Action[chromedp.Void]{
		chromedp.EmulateViewport(1120, 672), chromedp.Navigate(d.site), chromedp.WaitVisible("#key"),
		chromedp.SendKeys("#key", d.key+"\r"), chromedp.WaitVisible("nav"),
	} {
		if _, err := chromedp.Run(page, step); err != nil {
			return fmt.Errorf("signing in to the console: %w", err)
		}
	}
	sleep(ctx, 25*time.Second) // until the incidents are found and the page has refreshed
	image, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "console.png"), image, 0o644)
}

// browser starts Chromium; the caller ends it.
func browser(ctx context.Context) (context.Context, func(), error) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(2*time.Minute))
	alloc, stop := chromedp.NewExecAllocator(ctx, options...)
	page, end := chromedp.NewContext(alloc)
	return page, func() { end(); stop() }, nil
}
