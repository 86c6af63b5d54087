"""instructor: a model filled by a forced call, and by a JSON schema."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    degrees: int


for mode, text in ((instructor.Mode.TOOLS, "place mk501x"), (instructor.Mode.JSON_SCHEMA, "as json")):
    client = instructor.from_openai(OpenAI(), mode=mode)
    place = client.chat.completions.create(
        model="default", response_model=Place, messages=[{"role": "user", "content": text}], max_retries=1
    )
    assert (place.city, place.degrees) == ("Rome", 21), place
