package chunk

import "testing"

func TestProvidersByHost(t *testing.T) {
	f := func(host string, want Provider) {
		t.Helper()
		if got := ProviderOf(host); got != want {
			t.Errorf("%s: %d, not %d", host, got, want)
		}
	}
	f("api.openai.com", OpenAI)
	f("API.OpenAI.com:443", OpenAI)
	f("eu.api.openai.com", OpenAI)
	f("api.infercom.ai", Infercom)
	f("api.sambanova.ai", SambaNova)
	f("api.holysheep.ai", HolySheep)
	f("api.deepseek.com", DeepSeek)
	f("generativelanguage.googleapis.com", Gemini)
	f("api.anthropic.com:8443", Anthropic)
	f("", Unknown)
	f("127.0.0.1:8080", Unknown)
	f("[::1]", Unknown)
	f("notapi.openai.com", Unknown)
	f("api.openai.com.example.org", Unknown)
	f("eu.api.infercom.ai", Unknown)
}

var every = []Provider{Unknown, OpenAI, Infercom, SambaNova, HolySheep, DeepSeek, Gemini, Anthropic}

func TestReasonsOfErrors(t *testing.T) {
	f := func(body string, want Reason, providers ...Provider) {
		t.Helper()
		for _, p := range providers {
			var r Reader
			r.Reset(p)
			if got := r.ErrorBody([]byte(body)).Reason; got != want {
				t.Errorf("%s of provider %d\n got %d\nwant %d", body, p, got, want)
			}
			if v := r.View(Chat, nil, []byte(body)); v.Kind == Error && v.Reason != want {
				t.Errorf("%s of provider %d in a stream\n got %d\nwant %d", body, p, v.Reason, want)
			}
		}
	}
	documented := []Provider{Unknown, OpenAI, Infercom, SambaNova, DeepSeek, Gemini, Anthropic}

	// insufficient_quota, as OpenAI documents it, and in others' words.
	openai := `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	f(openai, NoMoney, OpenAI, Unknown)
	f(openai, RateLimit, Infercom, SambaNova)
	f(openai, Unsaid, HolySheep)
	busy := `{"error":{"message":"Rate limit reached","type":"insufficient_quota","param":null,"code":"insufficient_quota"},"request_id":"r"}`
	f(busy, RateLimit, Infercom, SambaNova)
	f(busy, NoMoney, OpenAI)
	f(busy, Unsaid, Unknown, HolySheep, DeepSeek)
	f(`{"error":{"message":"You exceeded your current quota","type":"invalid_request_error","code":"insufficient_quota"}}`, Unsaid, Unknown)
	f(`{"error":{"message":"m","type":"rate_limit_error","code":"insufficient_quota"}}`, RateLimit, Unknown, Infercom, SambaNova)
	f(`{"error":{"message":"m","type":"insufficient_quota","code":null}}`, NoMoney, OpenAI)
	f(`{"error":{"message":"m","type":"insufficient_quota","code":"budget_exceeded"}}`, Unsaid, Unknown)

	// What no retry helps against.
	for _, code := range []string{"credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_hard_limit_reached"} {
		f(`{"error":{"message":"m","type":"insufficient_quota","code":"`+code+`"}}`, NoMoney, documented...)
	}
	f(`{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"r"}`, NoMoney, Anthropic, Unknown)
	f(`{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, NoMoney, DeepSeek, Unknown)
	f(`[{"error":{"code":402,"message":"m","status":"FAILED_PRECONDITION"}}]`, NoMoney, every...)
	f(`{"error":{"message":"m","code":"quota_exceeded"}}`, DayLimit, Gemini)
	f(`[{"error":{"code":429,"message":"m","status":"QUOTA_EXCEEDED"}}]`, DayLimit, Gemini)
	f(`{"error":{"message":"m","code":"quota_exceeded"}}`, Unsaid, Unknown, OpenAI)
	f(`[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}]`, DayLimit, Gemini, Unknown)
	f(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}]}}]`, RateLimit, Gemini)
	f(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"reason":"quota_exceeded"}]}}]`, DayLimit, Gemini)
	f(`[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`, Auth, Gemini)

	// The rest.
	f(`{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}`, RateLimit, documented...)
	f(`{"error":{"message":"m","type":"server_error","code":"slow_down"}}`, RateLimit, OpenAI)
	f(`{"error":{"message":"m","code":"queue_full"}}`, Overload, SambaNova, Infercom)
	f(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Overload, Anthropic)
	f(`{"error":{"message":"m","type":"invalid_request_error","code":"invalid_api_key"}}`, Auth, OpenAI, SambaNova)
	f(`{"error":{"message":"m","type":"authentication_error","code":"invalid_request_error"}}`, Auth, DeepSeek)
	f(`{"error":{"message":"m","type":"invalid_request_error","code":"context_length_exceeded"}}`, TooLong, SambaNova)
	f(`{"error":{"message":"m","type":"invalid_request_error","code":"model_deprecated"}}`, NotFound, SambaNova)
	f(`[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]`, Invalid, Gemini)
	f(`[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`, Overload, every...)
	f(`{"error":{"message":"m","type":"invalid_request_error","code":"empty_array"}}`, Invalid, SambaNova)
	f(`{"error":{"message":"m","code":429}}`, RateLimit, every...)
	f(`{"error":{"message":"m","code":"401"}}`, Auth, every...)
	f(`{"object":"error","message":"m","type":"BadRequestError","code":400}`, Invalid, every...)
	f(`{"type":"error","code":"server_error","message":"m"}`, Failed, OpenAI)
	f(`{"type":"error","error":{"type":"timeout_error","message":"m"}}`, TimedOut, Anthropic)
	f(`{"error":"Not found"}`, Unsaid, every...)
	f(`Service Temporarily Unavailable`, Unsaid, every...)
	f(`{"error":{"message":"m","type":"new","code":"new"}}`, Unsaid, every...)
}

func TestOutputThatTheProviderCouldNotReadIsAReason(t *testing.T) {
	var r Reader
	for _, body := range []string{
		`{"error":{"message":"no tool call","type":"server_error","code":"adapter_mapping_failed","error_model_output":"{\"a\":{"}}`,
		`{"error":{"message":"no tool call","type":"invalid_request_error","error_model_output":""}}`,
		`{"error":{"message":"no tool call","code":"adapter_mapping_failed"}}`,
	} {
		if v := r.ErrorBody([]byte(body)); v.Reason != BadOutput || string(v.Message) != "no tool call" {
			t.Errorf("%s: reason %d, message %q", body, v.Reason, v.Message)
		}
	}
}

func TestFailedResponseHasAReason(t *testing.T) {
	var r Reader
	v := r.View(Responses, nil, []byte(`{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"m"}}}`))
	if v.Reason != RateLimit {
		t.Errorf("reason %d", v.Reason)
	}
}

func TestRequestIDOfAnError(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		var r Reader
		if v := r.ErrorBody([]byte(body)); string(v.RequestID) != want {
			t.Errorf("%s: %q", body, v.RequestID)
		}
	}
	f(`{"error":{"message":"m"},"request_id":"r\u0031"}`, "r1")
	f(`{"request_id":"r1","type":"error","error":{"message":"m"}}`, "r1")
	f(`{"error":{"message":"m","request_id":"r1"}}`, "r1")
	f(`{"error":"text","request_id":"r1"}`, "r1")
	f(`{"error":{"message":"m"},"request_id":null}`, "")
	f(`{"error":{"message":"m"},"request_id":7}`, "")
	f(`{"error":{"message":"m"}}`, "")
	f(`request_id`, "")
}
