package guard

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/messages"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/wire"
)

// A provider that lacks the caller's wire is sent another one. What it answers is judged and billed as it is, and
// translated after that.

// conversationWire is an endpoint of conversations: how its requests and answers are translated to and from the
// neutral form. A provider is only sent those that have a body.
type conversationWire struct {
	names   neutral.Names
	lacks   neutral.Lacks
	request func(*wire.Request, neutral.Options) (*neutral.Request, error)
	body    func(*neutral.Request, neutral.Form) ([]byte, error)
	reader  func(neutral.Writer) neutral.Reader
	writer  func(neutral.Reply, bool) neutral.Writer
}

var conversationWires = map[wire.Endpoint]conversationWire{
	wire.ChatCompletions: {chat.Names, chat.Lacks, chat.Request, chat.Body, chat.NewReader, chat.NewWriter},
	wire.Messages: {
		messages.Names, messages.Lacks, messages.Request, messages.Body, messages.NewReader, messages.NewWriter,
	},
	wire.Responses: {names: responses.Names, request: responses.Request, writer: responses.NewWriter},
}

// translated reports whether the provider is sent another form than the caller's.
func (p *Plan) translated() bool { return p.sent != p.Request }

func (p *Plan) translate() error {
	r, to := p.Request, p.Target.Provider.Wire(p.Request.Endpoint)
	p.sent = r
	p.counts = to == "" && r.Endpoint == wire.MessagesTokens
	if to == "" && !p.counts {
		return wire.BadRequest("model", "unsupported_endpoint",
			"/v1%s is not available for this model: its provider does not have it", r.Endpoint.Path())
	}
	if r.Endpoint == wire.Responses && p.kept.provider != "" && (to != r.Endpoint) != p.kept.here {
		return notOwned(r.Refs[0]) // the provider's setting has changed since
	}
	if to == r.Endpoint || p.counts {
		return nil
	}
	body, err := p.translation(to)
	if err != nil {
		return err
	}
	// Turns that were accepted one by one are not too large together.
	p.sent, err = wire.Scan(to, body, wire.Limits{MaxTokens: math.MaxInt32})
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		named := *refused
		named.Param = p.callersName(refused.Param)
		return &named
	}
	return err
}

func (p *Plan) translation(to wire.Endpoint) ([]byte, error) {
	r, provider := p.Request, conversationWires[to]
	o := neutral.Options{Lacks: provider.lacks, Items: p.kept.items}
	for _, t := range p.kept.turns {
		o.Turns = append(o.Turns, neutral.Turn{Input: t.Input, Output: responses.Output(t.Response)})
	}
	asked, err := conversationWires[r.Endpoint].request(r, o)
	if err != nil {
		return nil, err
	}
	return provider.body(asked, neutral.Form{
		Model: p.Target.Model, LimitField: p.chatLimitField(), Size: o.Size(r),
		Limit: cmp.Or(p.defaultLimit(), p.Price.MaxOutput, unlimitedQuota),
	})
}

// callersName returns the caller's name for a member of the request that the provider was sent.
func (p *Plan) callersName(param string) string {
	return conversationWires[p.Request.Endpoint].names.Param(
		conversationWires[p.Target.Provider.Wire(p.Request.Endpoint)].names.Field(param))
}

// conversation reads what a request continues from, and the items it refers to.
func (rs *resolver) conversation(ctx context.Context, c Caller, refs []wire.Ref,
	notes []ownership.Note,
) (turns []conversation.Turn, items map[string][]byte, err error) {
	if rs.turns == nil {
		return nil, nil, notOwned(refs[0])
	}
	ctx, cancel := context.WithTimeout(ctx, 4*rs.deadline) // it may be megabytes
	defer cancel()
	read := map[string]conversation.Turn{}
	for _, ref := range refs {
		if ref.Kind == wire.ObjectResponse {
			turns, err = rs.turns.Load(ctx, c.Org.ID, ref.ID)
			if err != nil {
				return nil, nil, unkept(ref, err)
			}
			read[ref.ID] = turns[len(turns)-1]
		}
	}
	items = map[string][]byte{}
	for i, ref := range refs {
		if ref.Kind != wire.ObjectItem {
			continue
		}
		id := notes[i].Response
		turn, ok := read[id]
		if !ok {
			turn, err = rs.turns.Get(ctx, c.Org.ID, id)
			if err != nil {
				return nil, nil, unkept(ref, err)
			}
			read[id] = turn
		}
		items[ref.ID] = responses.Item(responses.Output(turn.Response), ref.ID)
		if items[ref.ID] == nil {
			return nil, nil, notOwned(ref)
		}
	}
	return turns, items, nil
}

// unkept returns the error for a reference that cannot be read.
func unkept(ref wire.Ref, err error) error {
	switch {
	case errors.Is(err, conversation.ErrNotFound):
		return notOwned(ref)
	case errors.Is(err, conversation.ErrTooLarge):
		return wire.BadRequest(ref.Param, "conversation_too_long",
			"The conversation is too long to continue from %.100q. Send its items as input", ref.ID)
	}
	return stored(err)
}

// wires returns what translates the answer of a translated call.
func (e *upstreamCall) wires(streams bool) (neutral.Reader, neutral.Writer) {
	c := e.call
	r := neutral.Reply{Request: c.Plan.Request, ID: c.Alias}
	if c.Plan.Request.Endpoint == wire.Responses {
		r.ID = cmp.Or(r.ID, neutral.NewID("resp_"))
		c.Result.identify(r.ID)
		if c.Plan.Request.Store && c.guard.turns != nil {
			r.Final = func(response []byte) { e.keep(r.ID, response) }
		}
	}
	to := &billedWriter{Writer: conversationWires[c.Plan.Request.Endpoint].writer(r, streams), call: e}
	return conversationWires[c.Plan.sent.Endpoint].reader(to), to
}

// billedWriter shows the usage that is billed where the translation of the provider's answer has another one, or none:
// only the dialect knows all forms of usage.
type billedWriter struct {
	neutral.Writer
	call  *upstreamCall
	shown wire.Usage
}

func (w *billedWriter) Write(e neutral.Event) {
	used := w.call.used
	switch {
	case used == nil:
	case e.Kind == neutral.Count:
		w.shown = used.Usage
		if !e.Usage.Counts(used.Usage) {
			e.Usage = counted(used, e.Usage)
		}
	case e.Kind == neutral.End && w.shown != used.Usage:
		w.Writer.Write(neutral.Event{Kind: neutral.Count, Usage: counted(used, nil)})
	}
	w.Writer.Write(e)
}

func counted(a *wire.Answer, given *neutral.Usage) *neutral.Usage {
	if given == nil {
		return neutral.Counted(a, nil)
	}
	return neutral.Counted(a, given.More)
}

// keep stores a response that its provider does not store, before its caller has all of it
// and can continue from it.
func (e *upstreamCall) keep(id string, response []byte) {
	c := e.call
	t := conversation.Turn{Input: responses.InputItems(c.Plan.Request, c.Plan.kept.items), Response: response}
	for i := range c.Plan.kept.turns {
		t.Earlier += c.Plan.kept.turns[i].Size()
	}
	if n := len(c.Plan.kept.turns); n > 0 {
		t.Before = append(append(t.Before, c.Plan.kept.turns[n-1].Before...), c.Plan.kept.last)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.caller), c.guard.deadline)
	defer cancel()
	if err := c.guard.turns.Put(ctx, c.Plan.Caller.Org.ID, id, t); err != nil {
		c.guard.log.Warn("response not stored, it cannot be referenced", "call", c.ID, "err", err)
	}
}

// Response returns a response of the org that is stored here. The error is ErrNotOwned or
// wraps budget.ErrUnavailable.
func (o *Objects) Response(ctx context.Context, c Caller, id string) (conversation.Turn, error) {
	if o.turns == nil {
		return conversation.Turn{}, ErrNotOwned
	}
	ctx, cancel := context.WithTimeout(ctx, 4*o.deadline)
	defer cancel()
	t, err := o.turns.Get(ctx, c.Org.ID, id)
	if errors.Is(err, conversation.ErrNotFound) {
		return t, ErrNotOwned
	}
	return t, stored(err)
}
