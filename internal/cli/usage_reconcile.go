package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/top"
	"github.com/llmguard/llmguard/wire"
)

// maxTime is no end of a period.
var maxTime time.Time

// reconcileRead is more than the list may hold.
const reconcileRead = 200_000

func reconcileCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "reconcile", Short: "List charges that came too late to be booked by themselves, and book or drop them", Args: cobra.NoArgs,
		Long: "A charge that arrives more than an hour after its call cannot be told from one that was booked before, so it waits here.\n" +
			"\"booked\" is what the ledger has of the same call and attempt: if it has it, drop the charge; if it does not, charge it.",
		Example: "  llmguard usage reconcile\n" +
			"  llmguard usage reconcile charge --call 01m7x425asv4hapb0hzey6k903 --reason 'proxy 3 was cut off, ticket 90'",
		RunE: func(c *cobra.Command, _ []string) error { return showUnresolved(c.Context(), &f, c.OutOrStdout()) },
	}
	f.add(c, "table", "json")
	c.AddCommand(resolveCommand("charge", "Book a charge of the list", true), resolveCommand("drop", "Take a charge off the list and do not book it", false))
	return c
}

// unresolved is a charge on the list, and what the ledger has of its call.
type unresolved struct {
	budget.Entry
	Booked *bookedJSON `json:"booked,omitempty"`
}

// bookedJSON is the call's last entry.
type bookedJSON struct {
	Kind  string `json:"kind"`
	Total int64  `json:"total_nano"`
}

// readUnresolved reads an org's list, and its ledger from the oldest call on.
func readUnresolved(ctx context.Context, l *ledgers, org string) ([]unresolved, error) {
	list, err := l.Reconcile(ctx, org, reconcileRead)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	type attempt struct {
		id string
		n  int
	}
	out := make([]unresolved, len(list))
	at, first := map[attempt][]int{}, time.Now()
	for i, e := range list {
		out[i].Entry = e
		a := attempt{e.ID, e.Attempt}
		at[a] = append(at[a], i)
		if t, ok := wire.CallTime(e.ID); ok && t.Before(first) {
			first = t
		}
	}
	err = l.Entries(ctx, org, first.Add(-clockSkew), maxTime, func(e budget.Entry) error {
		for _, i := range at[attempt{e.ID, e.Attempt}] {
			out[i].Booked = &bookedJSON{e.Kind, int64(e.Total)}
		}
		return nil
	})
	return out, err
}

func showUnresolved(ctx context.Context, f *usageFlags, w io.Writer) error {
	l, err := f.open()
	if err != nil {
		return err
	}
	defer l.Close()
	all := []unresolved{}
	for _, org := range l.orgs {
		list, err := readUnresolved(ctx, l, org)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return render(w, f.output, all, func(w io.Writer) error {
		if len(all) == 0 {
			_, err := fmt.Fprintln(w, "nothing is left to reconcile")
			return err
		}
		g := grid{
			head:    []string{"arrived (UTC)", "org", "user", "model", "call", "attempt", "cost", "", "booked"},
			numbers: []bool{false, false, false, false, false, true, true, false, false},
		}
		for _, u := range all {
			booked := "no"
			if u.Booked != nil {
				booked = fmt.Sprintf("yes, %s (%s)", nano(u.Booked.Total), u.Booked.Kind)
			}
			g.add(u.At.UTC().Format("2006-01-02 15:04:05"), u.Org, u.User, top.Printable(u.Model), u.ID, whole(int64(u.Attempt)), u.Cost.String(), remark(u.Entry), booked)
		}
		return g.write(w)
	})
}

func resolveCommand(use, short string, charge bool) *cobra.Command {
	var f usageFlags
	var by who
	var call string
	var attempt int
	var again bool
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("attempt") {
				attempt = -1
			}
			return resolve(c.Context(), &f, &by, pick{call, attempt}, charge, again, c.OutOrStdout())
		},
	}
	f.add(c)
	by.add(c)
	c.Flags().StringVar(&call, "call", "", "the call's id; needed")
	c.Flags().IntVar(&attempt, "attempt", 0, "which attempt, if several of the call are on the list")
	_ = c.MarkFlagRequired("call")
	if charge {
		c.Flags().BoolVar(&again, "although-booked", false, "charge it although the ledger has the call already")
	} else {
		_ = c.Flags().MarkHidden("limits")
	}
	return c
}

// pick names a charge of the list; attempt -1 is any.
type pick struct {
	call    string
	attempt int
}

func (p pick) from(list []unresolved, org string) (unresolved, error) {
	var found []unresolved
	for _, u := range list {
		if u.ID == p.call && (p.attempt < 0 || u.Attempt == p.attempt) {
			found = append(found, u)
		}
	}
	switch {
	case len(found) == 0:
		return unresolved{}, fmt.Errorf("--call %s: no such charge is on org %s's list", p.call, org)
	case len(found) > 1 && p.attempt < 0 && found[0].Attempt != found[1].Attempt:
		return unresolved{}, fmt.Errorf("--call %s: %d attempts of it are on the list; name one with --attempt", p.call, len(found))
	}
	return found[0], nil
}

func resolve(ctx context.Context, f *usageFlags, by *who, p pick, charge, again bool, w io.Writer) error {
	l, org, err := f.openOne()
	if err != nil {
		return err
	}
	defer l.Close()
	list, err := readUnresolved(ctx, l, org)
	if err != nil {
		return err
	}
	u, err := p.from(list, org)
	if err != nil {
		return err
	}
	if charge && u.Booked != nil && !again {
		return fmt.Errorf("the ledger has this call already (%s, %s): drop the charge, or say --although-booked", u.Booked.Kind, nano(u.Booked.Total))
	}
	r := budget.Resolution{Charge: charge, By: by.name(), Reason: by.reason}
	if charge && by.limits {
		if r.Limits, err = app.LimitsOf(l.cfg, u.Call); err != nil {
			return err
		}
	}
	if _, err := l.Resolve(ctx, u.Entry, r); err != nil {
		if errors.Is(err, budget.ErrNotListed) || errors.Is(err, budget.ErrConflict) {
			return errors.New("somebody else has just resolved it")
		}
		return err
	}
	if !charge {
		fmt.Fprintf(w, "dropped %s of user %s of org %s\n", u.Cost, u.User, org)
		return nil
	}
	fmt.Fprintf(w, "charged %s to user %s of org %s\n", u.Cost, u.User, org)
	if by.limits {
		fmt.Fprintln(w, limitNames(r.Limits))
	}
	return nil
}
