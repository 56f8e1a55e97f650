package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os/exec"
	"regexp"
	"strings"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// steps runs steps, those for users and keys once for each.
func (d *Deployment) steps(ctx context.Context, steps []Step) error {
	for _, step := range steps {
		var err error
		switch step.For {
		case "":
			err = d.step(ctx, step, d.scope, d.scope.Vars)
		case "user", "key":
			err = d.each(ctx, step)
		default:
			err = fmt.Errorf("a step is for %q; write user, key or nothing", step.For)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Deployment) each(ctx context.Context, step Step) error {
	for _, user := range d.scope.Users {
		scope := d.scope
		scope.User = user
		if step.For == "user" {
			if err := d.step(ctx, step, scope, user.Vars); err != nil {
				return err
			}
			continue
		}
		for _, key := range user.Keys {
			scope.Key = key
			if err := d.step(ctx, step, scope, key.Vars); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Deployment) step(ctx context.Context, step Step, scope Scope, vars map[string]string) error {
	if step.Request != nil {
		answer, err := d.send(ctx, *step.Request, scope)
		if err != nil {
			return err
		}
		for name, path := range step.Save {
			found := values(answer, path)
			if len(found) == 0 {
				return fmt.Errorf("%s: the answer has no %s", step.Request.URL, path)
			}
			d.save(vars, name, fmt.Sprint(found[0]))
		}
		return nil
	}
	args, err := renderAll(step.Command, scope)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = scope.Dir
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	for name, expression := range step.Save {
		value, err := match(string(out), expression)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		d.save(vars, name, value)
	}
	return nil
}

func (d *Deployment) save(vars map[string]string, name, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	vars[name] = value
}

func match(text, expression string) (string, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return "", err
	}
	found := re.FindStringSubmatch(text)
	if len(found) < 2 {
		return "", fmt.Errorf("no match for %q in: %s", expression, text)
	}
	return found[1], nil
}

// send sends a request and returns its answer as JSON, nil if it is not JSON.
func (d *Deployment) send(ctx context.Context, in Request, scope Scope) (any, error) {
	url, err := render(in.URL, scope)
	if err != nil {
		return nil, err
	}
	body, err := render(in.Body, scope)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, in.Method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, text := range in.Headers {
		value, err := render(text, scope)
		if err != nil {
			return nil, err
		}
		request.Header.Set(name, value)
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", in.Method, url, answer.Status, text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var out any
	if decoder.Decode(&out) != nil {
		return nil, nil
	}
	return out, nil
}

// values finds what is at a path such as data.*.cost_usd; * is each element of a list.
func values(in any, path string) []any {
	if path == "" {
		return []any{in}
	}
	name, rest, _ := strings.Cut(path, ".")
	switch value := in.(type) {
	case map[string]any:
		if next, ok := value[name]; ok && next != nil {
			return values(next, rest)
		}
	case []any:
		if name != "*" {
			return nil
		}
		var out []any
		for _, element := range value {
			out = append(out, values(element, rest)...)
		}
		return out
	}
	return nil
}

// sum adds up numbers, and texts that are numbers, and returns them as money.
func sum(numbers []any, perUSD int64) (price.Nano, error) {
	total := new(big.Rat)
	for _, number := range numbers {
		value, ok := new(big.Rat).SetString(strings.TrimPrefix(fmt.Sprint(number), "$"))
		if !ok {
			return 0, fmt.Errorf("%v is not a number", number)
		}
		total.Add(total, value)
	}
	total.Mul(total, big.NewRat(int64(price.USD), perUSD))
	whole := new(big.Int).Quo(new(big.Int).Add(new(big.Int).Mul(total.Num(), big.NewInt(2)), total.Denom()),
		new(big.Int).Mul(total.Denom(), big.NewInt(2))) // to the nearest
	return price.Nano(whole.Int64()), nil
}

// Spent returns what the gateway says that a user has spent. The second result is false if it does
// not say.
func (d *Deployment) Spent(ctx context.Context, user int) (price.Nano, bool, error) {
	how := d.Manifest.Spent
	if how == nil {
		return 0, false, nil
	}
	scope := d.scope
	scope.User = d.scope.Users[user]
	keys := scope.User.Keys
	if how.For != "key" {
		keys = keys[:1]
	}
	var total price.Nano
	for _, key := range keys {
		scope.Key = key
		answer, err := d.send(ctx, how.Request, scope)
		if err != nil {
			return 0, false, err
		}
		found := values(answer, how.Value)
		if len(found) == 0 && !strings.Contains(how.Value, "*") {
			return 0, false, fmt.Errorf("the answer has no %s: %v", how.Value, answer)
		}
		part, err := sum(found, how.PerUSD)
		if err != nil {
			return 0, false, err
		}
		total += part
	}
	return total, true, nil
}
