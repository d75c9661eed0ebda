// The npm client of OpenAI against the address given; prints what it heard as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "anything", maxRetries: 0 });
const messages = [{ role: "user", content: "What time is it in Tokyo?" }];
const told = {};

const whole = await client.chat.completions.create({ model: "fingerpost", messages });
told.whole = whole.choices[0].message.content;

told.streamed = "";
for await (const chunk of await client.chat.completions.create({ model: "fingerpost", messages, stream: true })) {
  told.streamed += chunk.choices[0]?.delta?.content ?? "";
  told.finish = chunk.choices[0]?.finish_reason ?? told.finish;
}

const runner = client.chat.completions.stream({ model: "fingerpost", messages });
told.helper = await runner.finalContent();

const response = await client.responses.create({ model: "fingerpost", input: messages[0].content });
told.response = response.output_text;

told.models = [];
for await (const model of client.models.list()) told.models.push(model.id);

try {
  await client.models.retrieve("nobody");
} catch (error) {
  told.error = { status: error.status, code: error.code, param: error.param };
}

console.log(JSON.stringify(told));
